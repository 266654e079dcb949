"""A file of recorded requests is read, whatever state it is in."""

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import warmup_samples
from backends.warmup_samples import LINE_MAX_BYTES, PER_BUCKET_MAX, Recorded, read

BODY = {"model": "m", "prompt": "hi"}


def line(**fields: Any) -> bytes:
    known = {"at": 1.5, "model": "m", "path": "/v1/completions", "bucket": "<100", "body": BODY}
    return orjson.dumps(known | fields) + b"\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.jsonl"


def test_the_newest_come_first(file: Path) -> None:
    chat = {"model": "m", "messages": []}
    file.write_bytes(line() + line(path="/v1/chat/completions", body=chat))
    assert read(file, "m") == Recorded((("/v1/chat/completions", chat), ("/v1/completions", BODY)))


def test_a_file_that_is_missing_is_no_samples_and_says_so(file: Path) -> None:
    found = read(file, "m")
    assert found.requests == ()
    assert str(file) in found.problem


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    assert "not a file" in read(tmp_path, "m").problem or read(tmp_path, "m").problem
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in read(tmp_path / "pipe", "m").problem


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xfe\n",
        b"{}\n",
        b"[1]\n",
        b"null\n",
        line()[: len(line()) // 2] + b"\n",
        line(model="other"),
        line(path="/v1/embeddings"),
        line(path=["/v1/completions"]),
        line(body="hi"),
        line(body=None),
        line(bucket=3),
        line(body=BODY | {"prompt": "x" * LINE_MAX_BYTES}),
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_line_that_is_no_request_is_counted_and_costs_no_other(file: Path, bad: bytes) -> None:
    file.write_bytes(line() + bad + b"\n\n" + line())
    found = read(file, "m")
    assert (len(found.requests), found.skipped, found.problem) == (2, 1, "")


def test_a_line_that_is_still_being_written_is_left_out(file: Path) -> None:
    file.write_bytes(line() + line()[:-9])
    assert (len(read(file, "m").requests), read(file, "m").skipped) == (1, 1)


def test_of_a_huge_file_the_end_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup_samples, "TAIL_MAX_BYTES", 3 * len(line()) + 5)
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: a reader of all of it would never end
        stream.seek(0, os.SEEK_END)
        for n in range(4):
            stream.write(line(at=n))
    found = read(file, "m")
    assert (len(found.requests), found.skipped) == (3, 0)


def test_so_many_of_a_bucket_are_kept_and_no_bucket_crowds_out_another(file: Path) -> None:
    file.write_bytes(line(bucket="longer") + line() * (PER_BUCKET_MAX + 5))
    found = read(file, "m")
    assert (len(found.requests), found.skipped) == (PER_BUCKET_MAX + 1, 0)


def test_buckets_cannot_be_made_up_without_end(file: Path) -> None:
    file.write_bytes(b"".join(line(bucket=f"b{n}") for n in range(20)))
    found = read(file, "m")
    assert (len(found.requests), found.skipped) == (16, 4)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_are_an_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    file.write_bytes(raw)
    assert read(file, "m").requests == ()
