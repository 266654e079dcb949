"""Samples on disk: bounded, whole at every moment, nobody else's to read."""

import asyncio
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import settings as examined
from hypothesis import strategies as st

from gateway.config import Settings, parse
from gateway.controlplane.recorder import ARRIVING_MAX, Recorder
from gateway.messages import Sampled
from gateway.samples import BUCKET_NAMES
from gateway.telemetry.tally import Tally


def settings_for(folder: Path, **rules: Any) -> Settings:
    rules = {"enabled": "true", "per_bucket": 3, "max_bytes": 4096, **rules}
    lines = [
        "[recorder]",
        f'dir = "{folder}"',
        *(f"{key} = {value}" for key, value in rules.items()),
    ]
    for model in ("m", "n"):
        lines += ["[[model]]", f'name = "{model}"', 'weights = { "1" = 1 }']
    return parse("\n".join(lines))


def sample(
    text: str = "x", model: str = "m", bucket: str = "<100", redacted: bool = True
) -> Sampled:
    body = {"model": model, "prompt": text}
    return Sampled(1.5, model, "/v1/completions", bucket, body, redacted)


@dataclass
class Bench:
    folder: Path
    settings: Settings = field(init=False)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.settings = settings_for(self.folder)
        self.recorder = self.another()

    def another(self) -> Recorder:
        return Recorder(lambda: self.settings, self.tally, Random(1))

    async def keep(self, *samples: Sampled) -> None:
        for one in samples:
            self.recorder.heard(one)
        await self.recorder.write()

    def lines(self, model: str = "m") -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in (self.path(model)).read_bytes().splitlines()]

    def path(self, model: str = "m") -> Path:
        return self.folder / f"{model}.jsonl"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "samples")


async def test_a_line_says_when_where_how_long_and_what(bench: Bench) -> None:
    await bench.keep(sample("hello"))
    assert bench.lines() == [
        {
            "at": 1.5,
            "model": "m",
            "path": "/v1/completions",
            "bucket": "<100",
            "redacted": True,
            "body": {"model": "m", "prompt": "hello"},
        }
    ]


async def test_each_model_has_a_file_that_only_its_owner_reads(bench: Bench) -> None:
    old = os.umask(0)
    try:
        await bench.keep(sample(model="m"), sample(model="n"))
    finally:
        os.umask(old)
    assert sorted(bench.folder.iterdir()) == [bench.path("m"), bench.path("n")]
    assert [bench.path(model).stat().st_mode & 0o777 for model in "mn"] == [0o600, 0o600]
    assert bench.folder.stat().st_mode & 0o777 == 0o700


SAMPLES = st.lists(
    st.builds(
        sample,
        st.text(max_size=300),
        st.sampled_from(["m", "n"]),
        st.sampled_from([*BUCKET_NAMES, "unknown"]),
    ),
    max_size=25,
)


@examined(deadline=None, max_examples=25)
@given(SAMPLES)
def test_files_are_bounded_and_whole_whatever_comes(
    tmp_path_factory: pytest.TempPathFactory, samples: list[Sampled]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("samples"))

    async def play() -> None:
        for one in samples:
            await bench.keep(one)
            for path in bench.folder.iterdir():
                lines = bench.lines(path.stem)
                assert path.stat().st_size <= 4096
                for bucket in BUCKET_NAMES:
                    assert sum(line["bucket"] == bucket for line in lines) <= 3

    asyncio.run(play())


async def test_a_new_file_takes_the_old_one_s_place_and_is_never_half_there(bench: Bench) -> None:
    """Who has the old one open reads on in it: it was replaced, not written over."""
    await bench.keep(sample("first"))
    with bench.path().open("rb") as reading:
        await bench.keep(sample("second"))
        assert reading.read().count(b"\n") == 1
    assert [line["body"]["prompt"] for line in bench.lines()] == ["first", "second"]


async def test_nothing_is_kept_unless_it_is_asked_for(bench: Bench) -> None:
    bench.settings = settings_for(bench.folder, enabled="false")
    await bench.keep(sample())
    assert not bench.folder.exists()


async def test_a_reload_counts_from_the_next_sample_on(bench: Bench) -> None:
    await bench.keep(*(sample(str(number)) for number in range(3)))
    bench.settings = settings_for(bench.folder, per_bucket=1)
    await bench.keep(sample("new"))
    assert [line["body"]["prompt"] for line in bench.lines()] == ["new"]
    elsewhere = bench.folder / "elsewhere"
    bench.settings = settings_for(elsewhere)
    await bench.keep(sample("there"))
    assert len(bench.lines()) == 1
    bench.folder = elsewhere
    assert [line["body"]["prompt"] for line in bench.lines()] == ["there"]


async def test_a_model_that_nobody_configured_gets_no_file(bench: Bench) -> None:
    await bench.keep(sample(model="gone"), sample())
    assert list(bench.folder.iterdir()) == [bench.path("m")]


async def test_the_next_control_goes_on_with_the_file(bench: Bench) -> None:
    await bench.keep(sample("old"))
    with bench.path().open("ab") as file:
        file.write(b'{"bucket": 7}\n[1]\nnot json\n')  # somebody's hand
    bench.recorder = bench.another()
    await bench.keep(sample("new"))
    assert [line["body"]["prompt"] for line in bench.lines()] == ["old", "new"]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["bucket", "body", "model"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@examined(deadline=None, max_examples=100)
@given(st.lists(ODD | st.binary(max_size=9), max_size=4))
@example([{"bucket": []}])
@example([{"bucket": {}}])
def test_whatever_lines_a_file_has_the_next_sample_is_kept(
    tmp_path_factory: pytest.TempPathFactory, odd: list[Any]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("samples"))
    lines = [one if isinstance(one, bytes) else orjson.dumps(one) for one in odd]
    bench.path().write_bytes(b"\n".join(lines))
    asyncio.run(bench.keep(sample("new")))
    assert bench.lines()[-1]["body"]["prompt"] == "new"


@pytest.mark.parametrize("restarted", [False, True])
async def test_nothing_stays_of_a_time_without_redaction(bench: Bench, restarted: bool) -> None:
    """And nobody has to ask for it: the file of a model that gets no request is cleared as well."""
    bench.settings = settings_for(bench.folder, redact="false")
    await bench.keep(sample("filler"), sample("secret", redacted=False))
    await bench.keep(sample("secret", "n", redacted=False))
    assert [line["redacted"] for line in bench.lines()] == [True, False]
    if restarted:
        bench.recorder = bench.another()
    bench.settings = settings_for(bench.folder, redact="true")
    await bench.keep()
    assert [line["body"]["prompt"] for line in bench.lines()] == ["filler"]
    assert bench.lines("n") == []
    await bench.keep(sample("secret", redacted=False))  # of a worker that does not know yet
    assert [line["body"]["prompt"] for line in bench.lines()] == ["filler"]


@pytest.mark.parametrize(
    "said", [b"what a client said\n", b'{"bucket":"<100","redacted":1}\n', b"[]\n" * 2000]
)
async def test_what_may_be_words_of_clients_is_cleared_from_a_file(
    bench: Bench, said: bytes
) -> None:
    await bench.keep(sample("filler"))
    with bench.path().open("ab") as file:
        file.write(said)
    bench.recorder = bench.another()
    await bench.keep()
    assert [line["body"]["prompt"] for line in bench.lines()] == ["filler"]


async def test_a_file_that_cannot_be_cleared_holds_up_no_other_and_is_tried_again(
    bench: Bench,
) -> None:
    bench.path("m").mkdir(parents=True)
    await bench.keep(sample(model="n"))
    assert len(bench.lines("n")) == 1
    bench.path("m").rmdir()
    bench.path("m").write_bytes(b"what a client said\n")
    await bench.keep()
    assert bench.lines("m") == []


async def test_other_rules_are_looked_at_without_a_sample(bench: Bench) -> None:
    bench.settings = settings_for(bench.folder, redact="false")
    await bench.keep(sample("secret", redacted=False))
    written = asyncio.Event()

    class Watched(Recorder):
        async def write(self) -> None:
            await super().write()
            written.set()

    recorder = Watched(lambda: bench.settings, bench.tally, Random(1))
    running = asyncio.create_task(recorder.run())
    bench.settings = settings_for(bench.folder)
    recorder.look()
    await written.wait()
    running.cancel()
    assert bench.lines() == []


async def test_a_disk_that_fails_is_told_once_and_what_is_kept_comes_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.folder.parent.mkdir(exist_ok=True)
    bench.folder.write_bytes(b"in the way")
    with caplog.at_level(logging.WARNING):
        await bench.keep(sample("one"))
        await bench.keep(sample("two"))
    assert [record.message for record in caplog.records] == ["samples are not written"]
    bench.folder.unlink()
    await bench.keep(sample("three"))
    assert bench.lines()[-1]["body"]["prompt"] == "three"


async def test_a_flood_is_lost_and_not_kept_in_memory(bench: Bench) -> None:
    await bench.keep(*(sample() for _ in range(3 * ARRIVING_MAX)))
    assert bench.tally.samples["m", "<100"] == ARRIVING_MAX


async def test_samples_that_are_kept_are_counted_by_length(bench: Bench) -> None:
    await bench.keep(sample(), sample(bucket="longer"), sample(bucket="longer"))
    await bench.keep(sample("x" * 5000))  # more than the file may hold
    assert bench.tally.samples == {("m", "<100"): 1, ("m", "longer"): 2}


async def test_it_writes_by_itself_when_something_comes(bench: Bench) -> None:
    written = asyncio.Event()

    class Watched(Recorder):
        async def write(self) -> None:
            await super().write()
            written.set()

    recorder = Watched(lambda: bench.settings, bench.tally, Random(1))
    running = asyncio.create_task(recorder.run())
    recorder.heard(sample())
    await written.wait()
    running.cancel()
    assert len(bench.lines()) == 1
