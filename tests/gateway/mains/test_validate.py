"""`sluicegate validate` as it is typed, against scripted instances."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.mains.validate import validate
from tests.gateway.validation.scripted import Answering, Api, broken, otherwise, serving, well

Typed = list[str | Answering]


@pytest.fixture
def samples(tmp_path: Path) -> str:
    path = tmp_path / "samples.jsonl"
    lines = [{"messages": []}, {"path": "/v2/models/other/infer", "body": {"inputs": []}}]
    path.write_bytes(b"\n".join(orjson.dumps(one) for one in lines))
    return str(path)


async def _typed(*arguments: str | Answering) -> tuple[Result, list[Api]]:
    """An answering among the arguments stands for the URL of an instance that answers so."""
    async with AsyncExitStack() as stack:
        apis: list[Api] = []
        words: list[str] = []
        for one in arguments:
            if not isinstance(one, str):
                apis.append(await stack.enter_async_context(serving(one)))
                one = apis[-1].url
            words.append(one)
        with ThreadPoolExecutor() as threads:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(threads, CliRunner().invoke, validate, words)
    return result, apis


async def test_what_passes_exits_0_and_shows_a_table(samples: str) -> None:
    words = ["--samples", samples, "--model", "m", "--answers", "exact"]
    result, (new, _) = await _typed(*words, "--against", well, "--baseline", well)
    assert result.exit_code == 0, result.output
    rows = [" ".join(line.split()) for line in result.output.splitlines()]
    assert rows[1].startswith("against 2 2 0 0 0 ")
    assert rows[2].startswith("baseline 2 2 0 0 0 ")
    assert rows[-1].startswith("passed: 2 requests were tried: errors")
    assert sorted(path for path, _ in new.seen) == ["/v1/chat/completions", "/v2/models/m/infer"]


@pytest.mark.parametrize(
    ("answering", "said"),
    [(broken, "500: out of memory"), (otherwise, "the answers are 0.")],
)
async def test_what_fails_exits_1_and_names_the_samples(
    samples: str, answering: Answering, said: str
) -> None:
    words = ["--samples", samples, "--answers", "exact"]
    result, _ = await _typed(*words, "--against", answering, "--baseline", well)
    assert result.exit_code == 1
    assert f"line 1, /v1/chat/completions: {said}" in result.output
    assert result.output.splitlines()[-1].startswith("failed: ")


async def test_a_script_reads_json(samples: str) -> None:
    result, _ = await _typed("--samples", samples, "--against", broken, "--json")
    assert result.exit_code == 1
    document = orjson.loads(result.stdout)
    assert (document["passed"], document["new"]["failed"], document["old"]) == (False, 2, None)


@pytest.mark.parametrize(
    "words", [["--against", "127.0.0.1:1"], [], ["--against", "http://x", "--answers", "odd"]]
)
async def test_a_mistake_on_the_command_line_exits_2(samples: str, words: list[str]) -> None:
    result, _ = await _typed("--samples", samples, *words)
    assert result.exit_code == 2
