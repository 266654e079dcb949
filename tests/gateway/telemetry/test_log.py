"""One event, one line, readable by a machine or a person."""

import io
import logging
import sys

import orjson
import pytest

from gateway.telemetry.log import JsonLines, TextLines, chosen_format, configure


def record(level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("x", level, "f.py", 1, "drain began", (), None)
    made.__dict__.update(extra)
    return made


def test_a_json_line_carries_the_fields_of_the_event_and_of_the_process() -> None:
    line = orjson.loads(JsonLines({"worker": 1}).format(record(instance="a", held=3)))
    assert line.pop("at") > 0
    assert line == {
        "level": "info",
        "message": "drain began",
        "worker": 1,
        "instance": "a",
        "held": 3,
    }


def test_a_text_line_names_the_level_only_where_someone_must_look() -> None:
    calm, alarm = TextLines().format(record(a=1)), TextLines().format(record(logging.ERROR))
    assert calm.endswith(" drain began  a=1")
    assert alarm.endswith(" error: drain began")


def test_a_text_line_does_not_say_a_thing_twice() -> None:
    line = TextLines().format(record(kind="drain", subject="drain began", held=3))
    assert line.endswith(" drain began  held=3")


@pytest.mark.parametrize("lines", [JsonLines({}), TextLines()])
def test_an_exception_is_on_the_line(lines: logging.Formatter) -> None:
    made = record()
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: why" in lines.format(made)


def test_a_pipe_gets_json() -> None:
    assert chosen_format(io.StringIO()) == "json"


def test_configuring_twice_writes_each_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        configure("json", "info")
        configure("json", "info", process="control")
        logging.getLogger("any").info("once")
        said = capsys.readouterr().err.splitlines()
        (line,) = [one for one in said if "once" in one]  # others may complain at any moment
        assert orjson.loads(line)["process"] == "control"
    finally:
        root.handlers[:], root.level = before
