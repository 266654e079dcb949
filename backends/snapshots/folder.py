"""A folder as a source: Hugging Face's config and tokenizer, and weights, in shards or whole.

Floor 3, I/O.
The weights are safetensors files, or MindSpore checkpoints where there are none.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from backends.snapshots.checksum import file_sha256
from backends.snapshots.ckpt import CheckpointFile
from backends.snapshots.manifest import digest_of
from backends.snapshots.source import ImportFailed, Source, origin_text, some
from backends.snapshots.steps import Steps
from backends.snapshots.tensorfile import TensorFile
from backends.snapshots.transformer import (
    ConfigInvalid,
    Transformer,
    missing_and_foreign,
    read_config,
)
from backends.snapshots.wanted import CKPT

_INDEX: Final = "model.safetensors.index.json"
_WHOLE: Final = "model.safetensors"
_TEXTS: Final = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
_SAMPLING: Final = ("do_sample", "temperature", "top_p", "top_k", "repetition_penalty")


def folder_origin(folder: Path, steps: Steps, weights: str = "") -> str:
    """What a snapshot of `folder` is made from: the files that are read, not what lies beside them.

    Raises: ImportFailed when there are no weights.
    """
    names = [*_TEXTS, *_weight_names(folder, weights)]
    paths = [folder / name for name in names if (folder / name).is_file()]
    with steps(f"checksum of {folder.name}", sum(p.stat().st_size for p in paths)) as on_bytes:
        digest = digest_of({path.name: file_sha256(path, on_bytes) for path in paths})
    return origin_text("folder", folder.resolve().name, digest)


def open_folder(folder: Path, origin: str, weights: str = "") -> Source:
    """The model in `folder`; `weights` names the file of them, where it holds several models.

    Raises: ImportFailed, saying what is missing or not understood.
    """
    config = _table(folder, "config.json", required=True)
    tokenizer = _table(folder, "tokenizer.json", required=True)
    asked = _table(folder, "tokenizer_config.json")
    generation = _table(folder, "generation_config.json")
    places = _places([folder / name for name in _weight_names(folder, weights)])
    shape = _shape(config, places)
    eos = _ids(
        _token_id(tokenizer, asked.get("eos_token")),
        generation.get("eos_token_id"),
        config.get("eos_token_id"),
    )
    if not eos:
        raise ImportFailed(f"{folder.name} names no eos_token_id, so no answer would ever end")
    bos = _ids(
        _token_id(tokenizer, asked.get("bos_token")),
        generation.get("bos_token_id"),
        config.get("bos_token_id"),
    )
    return Source(
        origin=origin,
        shape=shape,
        tokenizer_json=(folder / "tokenizer.json").read_text("utf-8"),
        chat_template=_chat_template(folder, asked),
        bos=bos[0] if bos else None,
        eos=eos,
        sampling={key: generation[key] for key in _SAMPLING if key in generation},
        read=lambda name: places[name].read(name),
    )


def _places(files: Sequence[Path]) -> dict[str, TensorFile | CheckpointFile]:
    """The file of each tensor."""
    places: dict[str, TensorFile | CheckpointFile] = {}
    for file in files:
        opened = CheckpointFile(file) if file.suffix.lower() == CKPT else TensorFile(file)
        twice = places.keys() & opened.shapes.keys()
        if twice and isinstance(opened, CheckpointFile):
            raise ImportFailed(
                f"{file.name} holds {min(twice)} again: these are several checkpoints, or parts of "
                "matrices; name one .ckpt file, with the parts merged"
            )
        places |= dict.fromkeys(opened.shapes, opened)
    return places


def _shape(
    config: Mapping[str, Any], places: Mapping[str, TensorFile | CheckpointFile]
) -> Transformer:
    try:
        shape = read_config(config)
    except ConfigInvalid as exc:
        raise ImportFailed(f"config.json: {exc}") from exc
    found = {name: file.shapes[name] for name, file in places.items()}
    problems = list(missing_and_foreign(shape, found))
    if problems:
        raise ImportFailed(some(problems))
    return shape


def _weight_names(folder: Path, weights: str) -> list[str]:
    """Files that hold weights: all that the index names, or the only one there is."""
    if weights:
        names = [weights]
    elif (folder / _INDEX).is_file():
        places = _table(folder, _INDEX, required=True).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise ImportFailed(f"{_INDEX}: weight_map is missing")
        names = sorted({str(name) for name in places.values()})
    elif (folder / _WHOLE).is_file():
        names = [_WHOLE]
    else:
        names = sorted(path.name for path in folder.glob(f"*{CKPT}"))
    if not names:
        raise ImportFailed(f"{folder.name} holds neither {_WHOLE} nor {_INDEX} nor a {CKPT} file")
    for name in names:
        if Path(name).name != name:
            raise ImportFailed(f"{_INDEX}: {name!r} is not the name of a file in the folder")
        if not (folder / name).is_file():
            raise ImportFailed(f"{name} is missing, though {_INDEX} names it")
    return names


def _chat_template(folder: Path, asked: Mapping[str, Any]) -> str | None:
    """From the newest of the three places in which models keep it."""
    if (folder / "chat_template.jinja").is_file():
        # Not as text: line ends are part of the prompt.
        return (folder / "chat_template.jinja").read_bytes().decode("utf-8")
    template = _table(folder, "chat_template.json").get("chat_template")
    template = template or asked.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _token_id(tokenizer: Mapping[str, Any], token: Any) -> int | None:
    """Of a token written as tokenizer_config.json does: a text, or a table with its content."""
    word = token.get("content") if isinstance(token, dict) else token
    if word is None:
        return None
    for added in tokenizer.get("added_tokens", []):
        if added.get("content") == word:
            return int(added["id"])
    vocab = tokenizer.get("model", {}).get("vocab", {})
    return vocab.get(word) if isinstance(vocab, dict) else None


def _ids(*claims: Any) -> tuple[int, ...]:
    """All ids that the claims name (each nothing, one or a list), in order, none twice."""
    found: list[int] = []
    for claim in claims:
        found += claim if isinstance(claim, list) else [claim]
    return tuple(dict.fromkeys(token for token in found if isinstance(token, int)))


def _table(folder: Path, name: str, required: bool = False) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_text("utf-8"))
    except FileNotFoundError:
        if required:
            raise ImportFailed(f"{folder.name} has no {name}") from None
        return {}
    except ValueError as exc:
        raise ImportFailed(f"{name} is not JSON: {exc}") from exc
    if not isinstance(content, dict):
        raise ImportFailed(f"{name}: must be a table")
    return content
