"""Agents for real servers: this project's own, which know nothing of the agent in front of them."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import aiohttp
import numpy as np
import openai
import pytest

from backends.external.presets import Protocol
from backends.living import Ending
from backends.snapshots.mindir import import_graph
from backends.snapshots.repository import Repository
from backends.snapshots.steps import silent
from backends.snapshots.wanted import WantedGraph
from tests.backends.external.rig import living, settings_for
from tests.digits import draw, export_digits
from tests.ports import free_port
from tests.tiny import write_tiny_folder

pytestmark = [pytest.mark.live, pytest.mark.mindspore]

SLUICEGATE: Final = (sys.executable, "-m", "gateway.cli")
PATIENCE_S: Final = 240.0  # for a real engine to compile on a busy machine


def instance_of(model: str, root: Path, port: int) -> tuple[str, ...]:
    return (
        *(*SLUICEGATE, "instance", "--model", model, "--version", "1", "--root", str(root)),
        *("--cache-root", str(root.parent / "cache"), "--http", f"127.0.0.1:{port}"),
    )


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A repository with a text model of two layers."""
    source, root = write_tiny_folder(tmp_path / "source"), tmp_path / "models"
    imported = [*SLUICEGATE, "models", "import", str(source), "--root", str(root)]
    imported += ["--model", "m", "--version", "1"]
    subprocess.run(imported, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
    return root


async def test_an_openai_server_with_a_mindspore_engine(tiny: Path) -> None:
    port = free_port()
    settings = settings_for(
        command=instance_of("m", tiny, port),
        port=port,
        health=f"http://127.0.0.1:{port}/readyz",
        kill_after_s=60.0,
    )
    async with living(settings) as lived:
        await lived.tells("compiling")  # in its own words
        await lived.ready()
        async with openai.AsyncOpenAI(base_url=f"{lived.url}/v1", api_key="any") as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=8,
                temperature=0,
                stream=True,
            )
            finishes = [chunk.choices[0].finish_reason async for chunk in stream]
        assert finishes[-1] == "length"
        lived.terminate()
        assert await lived.ending() == Ending(0, abrupt=False)
    assert lived.standin.counts.steps  # it was asked for its metrics, and understood


async def test_a_kserve_server_with_a_mindspore_graph(tmp_path: Path) -> None:
    file, root, port = tmp_path / "digits.mindir", tmp_path / "models", free_port()
    export_digits(file, steps=1)
    wanted = WantedGraph("digits", "1", max_batch=4, max_delay_ms=2.0)
    import_graph(Repository(root), file, wanted, "2026-01-01T00:00:00Z", silent)
    base = f"http://127.0.0.1:{port}"
    settings = settings_for(
        command=instance_of("digits", root, port),
        port=port,
        model="digits",
        protocol=Protocol.KSERVE,
        health=f"{base}/v2/health/ready",
        models=f"{base}/v2/models/digits",
        metrics="",
        kill_after_s=60.0,
    )
    pictures, _ = draw(2, seed=3)
    tensor = {"name": "pictures", "datatype": "FP32", "shape": [2, 64]}
    asked = {"inputs": [tensor | {"data": np.asarray(pictures).ravel().tolist()}]}
    async with living(settings) as lived, aiohttp.ClientSession() as http:
        await lived.ready()
        url = f"{lived.url}/v2/models/digits/infer"
        async with http.post(url, json=asked) as answered:
            document = await answered.json()
            assert answered.status == 200, document
        assert document["outputs"][0]["shape"][0] == 2
        lived.terminate()
        assert (await lived.ending()).code == 0
