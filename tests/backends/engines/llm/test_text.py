"""Text in, ids out; ids in, text out as soon as it is certain and not earlier."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, processors

from backends.engines.llm.text import Detokenizer, StopScanner, Tokenizer
from backends.errors import RequestInvalid, SnapshotInvalid
from tests.tiny import EOS_ID, VOCAB, tiny_tokenizer, write_tiny_folder

BYTES = tiny_tokenizer()


def decode(ids: Sequence[int]) -> str:
    text: str = BYTES.decode(ids, skip_special_tokens=True)
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_tiny_folder(tmp_path_factory.mktemp("snapshot"))
    config = json.loads((path / "tokenizer_config.json").read_text())
    (path / "chat_template.jinja").write_text(config["chat_template"])
    return path


# --- detokenizing -----------------------------------------------------------------------------


@given(st.lists(st.integers(0, VOCAB - 1), max_size=30))
def test_pieces_of_any_ids_join_to_the_text_of_all(ids: list[int]) -> None:
    detokenizer = Detokenizer(decode)
    pieces = [detokenizer.push(id_) for id_ in ids]
    assert "".join(pieces) + detokenizer.flush() == decode(ids)
    assert detokenizer.flush() == ""


@given(st.text(max_size=20))
def test_no_piece_ends_inside_a_character_and_none_waits_longer_than_it_must(text: str) -> None:
    detokenizer = Detokenizer(decode)
    ids = BYTES.encode(text, add_special_tokens=False).ids
    sent = ""
    for count, id_ in enumerate(ids, start=1):
        sent += detokenizer.push(id_)
        raw = "".join(BYTES.id_to_token(each) or "" for each in ids[:count])
        whole = to_bytes(raw).decode("utf-8", "ignore")  # without the character just begun
        if "\ufffd" not in text:
            assert sent == whole


def to_bytes(raw: str) -> bytes:
    """Byte-level BPE writes each byte as a printable letter: the inverse, from its definition."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    letters |= {chr(256 + place): byte for place, byte in enumerate(others)}
    return bytes(letters[letter] for letter in raw)


def test_bytes_that_never_become_a_character_do_not_hold_the_text_up() -> None:
    detokenizer = Detokenizer(decode)
    broken = BYTES.token_to_id("ÿ")  # the byte 0xff, which no UTF-8 contains
    assert broken is not None
    assert [detokenizer.push(broken) for _ in range(5)] == ["", "", "", "\ufffd", "\ufffd"]
    assert detokenizer.flush() == "\ufffd" * 3


def test_a_decoder_that_trims_the_first_token_keeps_the_spaces_between() -> None:
    """Metaspace drops the space before a first word, so a token alone reads otherwise."""
    library = Library(models.WordLevel({"▁Hello": 0, "▁big": 1, "▁world": 2}, unk_token="▁big"))
    library.decoder = decoders.Metaspace()
    detokenizer = Detokenizer(lambda ids: str(library.decode(list(ids))))
    assert [detokenizer.push(id_) for id_ in (0, 1, 2)] == ["Hello", " big", " world"]


def test_special_tokens_are_no_text(folder: Path) -> None:
    detokenizer = Tokenizer.read(folder).detokenizer()
    assert detokenizer.push(EOS_ID) + detokenizer.flush() == ""


# --- stop strings -----------------------------------------------------------------------------

letters = st.text("ab", max_size=12)


def naive(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """Letter by letter: the first stop string to be complete, the longest of those."""
    for end in range(1, len(text) + 1):
        complete = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(complete)], True
    return text, False


@given(st.lists(letters, max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_a_stop_string_is_found_wherever_the_tokens_end(
    tokens: list[str], listed: list[str]
) -> None:
    stops = tuple(listed)
    scanner = StopScanner(stops)
    sent, found = "", False
    for token in tokens:
        piece, found = scanner.push(token)
        sent += piece
        whole = "".join(tokens)
        assert naive(whole, stops)[0].startswith(sent)  # nothing of a stop string was sent
        if found:
            break
    rest = "" if found else scanner.flush()
    assert (sent + rest, found) == naive("".join(tokens), stops)


@given(letters, st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_only_what_a_stop_string_may_begin_with_is_held_back(text: str, listed: list[str]) -> None:
    scanner = StopScanner(tuple(listed))
    sent, found = scanner.push(text)
    if not found:
        held = text[len(sent) :]
        beginnings = {stop[:length] for stop in listed for length in range(1, len(stop))}
        assert held in beginnings or held == ""
        assert not any(text.endswith(b) and len(b) > len(held) for b in beginnings)


def test_after_a_stop_string_nothing_is_sent_any_more() -> None:
    scanner = StopScanner(("END",))
    assert scanner.push("on EN") == ("on ", False)
    assert scanner.push("D and on") == ("", True)
    assert scanner.push("and on") == ("", True)
    assert scanner.flush() == ""


def test_an_empty_stop_string_stops_nothing() -> None:
    assert StopScanner(("",)).push("text") == ("text", False)


# --- reading and encoding ---------------------------------------------------------------------


def test_a_chat_is_the_template_filled_and_encoded_with_its_special_tokens(folder: Path) -> None:
    tokenizer = Tokenizer.read(folder)
    ids = tokenizer.chat([{"role": "user", "content": "hi"}])
    wanted = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert ids == BYTES.encode(wanted, add_special_tokens=False).ids
    assert ids[0] == BYTES.token_to_id("<|im_start|>")


def test_a_template_that_refuses_is_the_clients_mistake(folder: Path) -> None:
    with pytest.raises(RequestInvalid, match="unknown role wizard") as caught:
        Tokenizer.read(folder).chat([{"role": "wizard", "content": "hi"}])
    assert caught.value.path == "messages"


def test_special_tokens_around_a_text_are_added_when_asked_for(tmp_path: Path) -> None:
    library = tiny_tokenizer()
    library.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    tokenizer = Tokenizer.read(tmp_path)
    assert tokenizer.encode("hi", special=True) == [1, *tokenizer.encode("hi", special=False)]
    # A template writes them itself: a second one would be a mistake.
    assert tokenizer.chat([{"content": "hi"}]) == tokenizer.encode("hi", special=False)


def test_a_model_without_a_template_takes_no_chat(tmp_path: Path) -> None:
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(RequestInvalid, match="no chat template"):
        Tokenizer.read(tmp_path).chat([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    ("generation", "config", "stops"),
    [
        ({"eos_token_id": 2}, {"eos_token_id": 0}, {2}),
        ({"eos_token_id": [2, 0]}, {}, {0, 2}),
        ({"eos_token_id": None}, {"eos_token_id": 0}, {0}),
        ({}, {}, set()),
        (None, {"eos_token_id": 1}, {1}),
    ],
)
def test_what_ends_an_answer_is_read_from_the_generation_config_first(
    tmp_path: Path, generation: Any, config: Any, stops: set[int]
) -> None:
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert Tokenizer.read(tmp_path).stop_ids == stops


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", None),
        ("generation_config.json", "["),
        ("generation_config.json", "[]"),
        ("generation_config.json", '{"eos_token_id": "two"}'),
        ("chat_template.jinja", "{% if %}"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    folder: Path, tmp_path: Path, name: str, text: str
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SnapshotInvalid, match=name):
        Tokenizer.read(tmp_path)


def test_the_first_and_last_token_of_the_model_and_the_date_reach_the_template(
    tmp_path: Path,
) -> None:
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"bos_token_id": 1, "eos_token_id": [2, 0]}')
    source = "{{ bos_token }}{{ strftime_now('%Y') }}{{ eos_token }}"
    (tmp_path / "chat_template.jinja").write_text(source)
    tokenizer = Tokenizer.read(tmp_path, now=lambda: datetime(2031, 5, 6))
    assert tokenizer.chat([]) == [1, *tokenizer.encode("2031", special=False), 2]


# --- single tokens ----------------------------------------------------------------------------


@given(st.text(max_size=20))
def test_the_bytes_of_a_texts_tokens_are_the_text(text: str) -> None:
    tokenizer = Tokenizer(BYTES, None, frozenset())
    ids = tokenizer.encode(text, special=False)
    assert b"".join(tokenizer.token_bytes(id_) for id_ in ids) == text.encode()


def test_special_tokens_go_by_their_name_and_unknown_ones_by_none() -> None:
    tokenizer = Tokenizer(BYTES, None, frozenset())
    assert tokenizer.token_bytes(EOS_ID) == b"<|im_end|>"
    assert tokenizer.token_bytes(VOCAB) == b""


def test_a_word_that_was_added_to_the_vocabulary_is_written_as_it_is() -> None:
    library = tiny_tokenizer()
    library.add_tokens(["é中é"])
    library.add_tokens(["Ġé"])  # letters that stand for bytes elsewhere
    tokenizer = Tokenizer(library, None, frozenset())
    words = [tokenizer.token_bytes(id_).decode() for id_ in (VOCAB, VOCAB + 1)]
    assert words == ["é中é", "Ġé"]


def test_vocabularies_that_write_text_as_it_is_are_read_so() -> None:
    library = Library(models.BPE(vocab={"\u2581a": 0, "<0xC3>": 1, "Ġ": 2}, merges=[]))
    library.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    tokenizer = Tokenizer(library, None, frozenset())
    assert [tokenizer.token_bytes(id_) for id_ in range(3)] == [b" a", b"\xc3", "Ġ".encode()]
    library.decoder = decoders.Sequence([decoders.Strip(" ", 0, 0), decoders.ByteLevel()])
    assert Tokenizer(library, None, frozenset()).token_bytes(2) == b" "
    library.decoder = None
    assert Tokenizer(library, None, frozenset()).token_bytes(2) == "Ġ".encode()
