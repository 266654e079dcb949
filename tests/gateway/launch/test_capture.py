from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.launch.capture import BYTES_PER_S_MAX, LINE_MAX, Capture

NAMES = {"instance_id": "m-1-0", "model": "m", "model_version": "1"}
AT = 1000.0


def capture() -> Capture:
    return Capture("m-1-0", "m", "1")


def read(lines: bytes) -> list[dict[str, Any]]:
    assert not lines or lines.endswith(b"\n")
    return [orjson.loads(line) for line in lines.splitlines()]


def test_a_plain_line_gets_time_level_and_names() -> None:
    assert read(capture().feed(b"hello\r\n\n  \n", 1000.1234)) == [
        {"at": 1000.123, "level": "info", "message": "hello", **NAMES}
    ]


def test_a_json_line_keeps_its_fields_and_cannot_speak_for_another() -> None:
    line = b'{"at": 1, "message": "loaded", "part": 3, "instance_id": "other"}\n'
    assert read(capture().feed(line, AT)) == [{"at": 1, "message": "loaded", "part": 3, **NAMES}]


def test_a_line_comes_when_it_is_whole() -> None:
    one = capture()
    assert one.feed(b"ab", AT) == b""
    assert [line["message"] for line in read(one.feed(b"c\nd", AT))] == ["abc"]
    assert [line["message"] for line in read(one.finish(AT))] == ["d"]
    assert one.finish(AT) == b""


def test_json_that_is_deeper_than_can_be_written_is_text() -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    assert read(capture().feed(deep + b"\n", AT))[0]["message"] == deep.decode()


def test_what_has_no_end_is_written_in_pieces_and_never_held() -> None:
    one = capture()
    fed = b"".join(one.feed(b"x" * 10_000, AT) for _ in range(20))
    assert len(fed) > 200_000 - LINE_MAX
    messages = [line["message"] for line in read(fed + one.finish(AT))]
    assert "".join(messages) == "x" * 200_000
    assert max(map(len, messages)) == LINE_MAX


def test_too_much_in_a_second_is_dropped_and_the_next_one_says_how_much() -> None:
    one = capture()
    flood = b"x" * 1000 + b"\n"
    taken = one.feed(flood * 5000, AT)
    assert len(taken) > BYTES_PER_S_MAX
    assert one.feed(flood * 7, AT + 0.5) == b""
    notice, line = read(one.feed(b"again\n", AT + 1))
    assert (notice["level"], notice["message"].split()[0]) == ("warning", "7")
    assert line["message"] == "again"
    assert len(read(one.feed(b"quiet\n", AT + 2))) == 1


def test_short_lines_count_by_what_they_become() -> None:
    one = capture()
    one.feed(b"x\n" * 65_000, AT)
    assert one.feed(b"x\n", AT) == b""


def test_what_the_disk_did_not_take_is_told() -> None:
    one = capture()
    one.missed(b"a\nb\n")
    assert read(one.finish(AT))[0]["message"].startswith("2 lines dropped")


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_whatever_comes_goes_as_documents_with_the_names(pieces: list[bytes]) -> None:
    one = capture()
    lines = b"".join(one.feed(piece, AT) for piece in pieces) + one.finish(AT)
    assert all(document.items() >= NAMES.items() for document in read(lines))
    whole = [line for line in b"".join(pieces).split(b"\n") if line.strip()]
    assert len(read(lines)) == len(whole)
