"""What a log line holds."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from backends.log import configure


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    written = io.StringIO()
    configure("m-1-0", "m", "1", to=written)
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)


def only(lines: io.StringIO, message: str) -> dict[str, object]:
    """The one that says so: what earlier tests have left may be complained of at any moment."""
    documents = [orjson.loads(line) for line in lines.getvalue().splitlines()]
    (document,) = [one for one in documents if one["message"] == message]
    assert isinstance(document, dict)
    return document


def test_every_line_names_its_instance_and_version(lines: io.StringIO) -> None:
    logging.getLogger("anything").info("drain began", extra={"held": 3})
    line = only(lines, "drain began")
    assert (line["instance_id"], line["model"], line["model_version"]) == ("m-1-0", "m", "1")
    assert (line["level"], line["message"], line["held"]) == ("info", "drain began", 3)


def test_a_field_cannot_pass_itself_off_as_another_instance(lines: io.StringIO) -> None:
    logging.getLogger("anything").info("hello", extra={"instance_id": "other"})
    assert only(lines, "hello")["instance_id"] == "m-1-0"


def test_a_field_that_json_cannot_hold_does_not_cost_the_line(lines: io.StringIO) -> None:
    logging.getLogger("anything").info("read", extra={"path": Path("a/b"), "bad": {1: b"\xff"}})
    assert only(lines, "read")["path"] == "a/b"


def test_bytes_of_a_client_that_are_no_utf_8_do_not_cost_the_line(lines: io.StringIO) -> None:
    """aiohttp reads such a header as half a surrogate pair, which orjson refuses to write."""
    strange = b"id-\xff".decode("utf-8", "surrogateescape")
    logging.getLogger("anything").info("request ended", extra={"request_id": strange})
    (line,) = lines.getvalue().splitlines()
    assert json.loads(line)["request_id"] == strange
    assert json.loads(line)["instance_id"] == "m-1-0"


def test_an_exception_is_one_line_with_its_traceback(lines: io.StringIO) -> None:
    try:
        raise ValueError("no such shape")
    except ValueError:
        logging.getLogger("anything").exception("load failed")
    assert "no such shape" in str(only(lines, "load failed")["exception"])


def test_debug_is_off(lines: io.StringIO) -> None:
    logging.getLogger("anything").debug("noise")
    assert "noise" not in lines.getvalue()
