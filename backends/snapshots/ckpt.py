"""A MindSpore checkpoint (.ckpt) as a file of tensors, read one tensor at a time.

Floor 3, I/O.
The format is that of mindspore/train/checkpoint.proto: a row of values, each a name and a tensor
(dims, type, content); one of over 512 MiB is several values of the same name, in order. It is read
here by its wire form, because the library wants a whole file in memory, twice.
Networks of MindFormers name their parameters in their own way; the rest uses Hugging Face's names.
What an optimizer keeps beside the weights is left out.
"""

import math
import mmap
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backends.snapshots.source import ImportFailed
from backends.snapshots.tensorfile import widen

# Type in the file -> code of the safetensors format. Other types are no weights.
_CODES: Final = {"Float32": "F32", "Float16": "F16", "BFloat16": "BF16"}
_STORED: Final[Mapping[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
_SUM: Final = b"crc_num"  # then ten bytes, big-endian: CRC32 of all before it
_SUM_BYTES: Final = len(_SUM) + 10
_BLOCK: Final = 1 << 24

# MindFormers' part of a name -> Hugging Face's, inside a layer and outside.
_LAYER: Final = {
    "attention_norm": "input_layernorm",
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
}
_WHOLE: Final = {
    "model.tok_embeddings.embedding_weight": "model.embed_tokens.weight",
    "model.embed_tokens.embedding_table": "model.embed_tokens.weight",  # an nn.Embedding's own
    "model.norm_out.weight": "model.norm.weight",
}
_IN_LAYER: Final = re.compile(r"(model\.layers\.\d+)\.(.+)\.(weight|bias)")
_OF_OPTIMIZERS: Final = re.compile(r"(adam_[mv]|moments?[12]?|accu_grads|accumulation)\..*")
_JOINED: Final = ("attention.w_qkv", "feed_forward.w_gate_hidden", "attention.w_q_kv")


class _Broken(ValueError):
    """The bytes are not what the format allows here."""


@dataclass(frozen=True, slots=True)
class _Entry:
    code: str
    shape: tuple[int, ...]
    pieces: list[tuple[int, int]] = field(default_factory=list)  # begin, end of its content


class CheckpointFile:
    """One .ckpt file, mapped; `shapes` holds what is in it, by Hugging Face's names."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries = _index(file)
        self.shapes = {name: entry.shape for name, entry in self._entries.items()}

    def read(self, name: str) -> NDArray[np.float32]:
        entry = self._entries[name]
        parts = []
        with self._file.open("rb") as opened:
            for begin, end in entry.pieces:
                opened.seek(begin)
                parts.append(opened.read(end - begin))
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        return widen(np.frombuffer(content, _STORED[entry.code]).reshape(entry.shape), entry.code)


def hugging_face_name(name: str) -> str:
    """The parameter's name in Hugging Face's layout; unknown ones stay, and are refused by name."""
    if name in _WHOLE:
        return _WHOLE[name]
    found = _IN_LAYER.fullmatch(name)
    if found and found[2] in _LAYER:
        return f"{found[1]}.{_LAYER[found[2]]}.{found[3]}"
    return name


def _index(file: Path) -> dict[str, _Entry]:
    """Raises: ImportFailed, saying what is wrong with the file."""
    if not file.stat().st_size:
        raise ImportFailed(f"{file.name} is empty")
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = _checked_end(file, data)
        entries: dict[str, _Entry] = {}
        try:
            for number, begin, stop in _fields(data, 0, end):
                if number != 1:
                    raise _Broken
                _take(file, entries, data, begin, stop)
        except (_Broken, UnicodeDecodeError):
            text = f"{file.name} is not a MindSpore checkpoint, or it is cut short or encrypted"
            raise ImportFailed(text) from None
    for name, entry in entries.items():
        held = sum(end - begin for begin, end in entry.pieces)
        if held != math.prod(entry.shape) * _STORED[entry.code].itemsize:
            raise ImportFailed(f"{file.name}: {name}: its {held} bytes do not fit {entry.shape}")
    return entries


def _checked_end(file: Path, data: mmap.mmap) -> int:
    """Where the values end; the checksum is compared if there is one."""
    end = len(data) - _SUM_BYTES
    if end < 0 or data[end : end + len(_SUM)] != _SUM:
        return len(data)
    found = 0
    for at in range(0, end, _BLOCK):
        found = zlib.crc32(data[at : min(at + _BLOCK, end)], found)
    if found != int.from_bytes(data[end + len(_SUM) :], "big"):
        raise ImportFailed(f"{file.name} is damaged: its checksum is another")
    return end


def _take(file: Path, entries: dict[str, _Entry], data: mmap.mmap, begin: int, stop: int) -> None:
    """One value: into `entries` if it is a weight, or a part of one."""
    tag, tensor = "", None
    for number, at, end in _fields(data, begin, stop):
        if number == 1:
            tag = data[at:end].decode()
        elif number == 2:
            tensor = (at, end)
    if tensor is None or _OF_OPTIMIZERS.fullmatch(tag):  # a map parameter is no weight either
        return
    dims, kind, content = _tensor(data, *tensor)
    if any(f".{part}." in tag for part in _JOINED):
        raise ImportFailed(
            f"{file.name}: {tag} holds several matrices joined: save the checkpoint with "
            "qkv_concat off"
        )
    if not dims or kind not in _CODES:  # epoch_num, learning rates, flags
        return
    name = hugging_face_name(tag)
    entry = entries.setdefault(name, _Entry(_CODES[kind], dims))
    if (entry.code, entry.shape) != (_CODES[kind], dims):
        raise ImportFailed(f"{file.name}: {tag} is there twice, and differs")
    entry.pieces.append(content)


def _tensor(data: mmap.mmap, begin: int, stop: int) -> tuple[tuple[int, ...], str, tuple[int, int]]:
    """Dims, type, and where its content is."""
    dims: list[int] = []
    kind, content = "", (begin, begin)
    for number, at, end in _fields(data, begin, stop):
        if number == 1:
            while at < end:  # one value, or all of them packed
                value, at = _varint(data, at, end)
                dims.append(value)
        elif number == 2:
            kind = data[at:end].decode()
        elif number == 3:
            content = (at, end)
    return tuple(dims), kind, content


def _fields(data: mmap.mmap, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each field; a number's end is that of its digits."""
    while at < stop:
        key, at = _varint(data, at, stop)
        number, wire = key >> 3, key & 7
        if wire == 0:
            _, end = _varint(data, at, stop)
        elif wire == 2:
            length, at = _varint(data, at, stop)
            end = at + length
        else:
            raise _Broken
        if end > stop:
            raise _Broken
        yield number, at, end
        at = end


def _varint(data: mmap.mmap, at: int, stop: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            raise _Broken
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Broken
