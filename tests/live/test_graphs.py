"""A trained graph behind the real gateway, asked by Triton's own client: from export to drain."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from backends.snapshots.mindir import import_graph
from backends.snapshots.repository import Repository
from backends.snapshots.steps import silent
from backends.snapshots.wanted import WantedGraph
from tests.digits import draw, export_digits
from tests.live.gateways import Gateway, config, running

pytestmark = [pytest.mark.live, pytest.mark.mindspore]

MODEL = "digits"
INSTANCE = f"{MODEL}-1-0"
CONFIG = f"""
[[model]]
name = "{MODEL}"
weights = {{ "1" = 100 }}
replicas = {{ "1" = 1 }}
pinnable = true
limit = 12
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def reads(folder: Path) -> Callable[[Any], list[int]]:
    """What the trained cell itself reads on pictures; it is exported to `digits.mindir`."""
    import mindspore as ms

    cell = export_digits(folder / "digits.mindir")
    return lambda pictures: cell(ms.Tensor(pictures))[1].asnumpy().tolist()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def gateway(folder: Path, reads: Callable[[Any], list[int]]) -> AsyncIterator[Gateway]:
    """One instance of the graph."""
    file = folder / "digits.mindir"
    wanted = WantedGraph(MODEL, "1", max_batch=4, max_delay_ms=20.0)
    import_graph(Repository(folder / "models"), file, wanted, "2026-01-01T00:00:00Z", silent)
    text = config(folder, CONFIG, gateway=f'default_model = "{MODEL}"')
    async with running(folder, text) as started:
        await started.ready(INSTANCE)
        await started.routes(MODEL, {"1": 100})
        yield started


def client_of(address: str, concurrency: int = 1) -> Any:
    import tritonclient.http  # it brings gevent: not for processes that do not need it

    return tritonclient.http.InferenceServerClient(
        address.removeprefix("http://"), concurrency=concurrency, network_timeout=300.0
    )


def tensors(rows: int, binary: bool) -> tuple[list[Any], list[Any], Any]:
    """Inputs and outputs for the client, and the pictures."""
    import tritonclient.http

    pictures, _ = draw(rows, seed=2_000_000)
    given = tritonclient.http.InferInput("pictures", list(pictures.shape), "FP32")
    given.set_data_from_numpy(pictures, binary_data=binary)
    wanted = [
        tritonclient.http.InferRequestedOutput(name, binary_data=binary)
        for name in ("output_1", "output_0")
    ]
    return [given], wanted, pictures


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("version", ["", "1"])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
async def test_tritons_client_reads_digits_through_the_gateway(
    gateway: Gateway, reads: Callable[[Any], list[int]], binary: bool, version: str
) -> None:
    inputs, outputs, pictures = tensors(4, binary)
    digits = reads(pictures)

    def ask() -> None:
        with client_of(gateway.url) as client:
            answer = client.infer(
                MODEL, inputs, model_version=version, outputs=outputs, request_id="mine"
            )
            assert answer.get_response()["id"] == "mine"
            logits, best = answer.as_numpy("output_0"), answer.as_numpy("output_1")
            assert (logits.dtype, logits.shape) == (np.float32, (4, 10))
            assert (logits.argmax(axis=1) == best).all()
            assert best.tolist() == digits

    await asyncio.to_thread(ask)


@pytest.mark.asyncio(loop_scope="module")
async def test_tritons_client_finds_health_and_metadata(gateway: Gateway) -> None:
    def ask() -> None:
        with client_of(gateway.url) as client:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready(MODEL)
            assert client.is_model_ready(MODEL, "1")
            assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
            metadata = client.get_model_metadata(MODEL)
            assert (metadata["name"], metadata["versions"]) == (MODEL, ["1"])
            assert metadata["inputs"] == [
                {"name": "pictures", "datatype": "FP32", "shape": [-1, 64]}
            ]

    await asyncio.to_thread(ask)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compressed_requests_are_read(
    gateway: Gateway, reads: Callable[[Any], list[int]], coding: str
) -> None:
    inputs, outputs, pictures = tensors(4, binary=True)
    digits = reads(pictures)

    def ask() -> None:
        with client_of(gateway.url) as client:
            answer = client.infer(
                MODEL, inputs, outputs=outputs, request_compression_algorithm=coding
            )
            assert answer.as_numpy("output_1").tolist() == digits

    await asyncio.to_thread(ask)


@pytest.mark.asyncio(loop_scope="module")
async def test_tritons_client_is_told_of_its_mistakes(gateway: Gateway) -> None:
    def ask() -> None:
        from tritonclient.utils import InferenceServerException

        with client_of(gateway.url) as client:
            inputs, _, _ = tensors(5, binary=True)
            with pytest.raises(InferenceServerException, match="must be from 1 to 4 rows, not 5"):
                client.infer(MODEL, inputs)
            inputs, _, _ = tensors(1, binary=True)
            inputs[0].set_shape([1, 63])
            with pytest.raises(
                InferenceServerException, match=r"must be \[-1, 64\], not \[1, 63\]"
            ):
                client.infer(MODEL, inputs)

    await asyncio.to_thread(ask)


@pytest.mark.asyncio(loop_scope="module")
async def test_requests_that_come_together_share_runs_and_each_has_its_own_answer(
    gateway: Gateway,
) -> None:
    """Twelve rows, at most four a run. How many meet is the machine's business; that none is
    answered with another's row is ours."""

    def ask() -> None:
        import tritonclient.http

        pictures, _ = draw(12, seed=3_000_000)
        with client_of(gateway.url, concurrency=12) as client:
            pending = []
            for picture in pictures:
                given = tritonclient.http.InferInput("pictures", [1, 64], "FP32")
                given.set_data_from_numpy(picture[None])
                pending.append(client.async_infer(MODEL, [given]))
            together = [one.get_result().as_numpy("output_0")[0] for one in pending]
            for picture, logits in zip(pictures, together, strict=True):
                given = tritonclient.http.InferInput("pictures", [1, 64], "FP32")
                given.set_data_from_numpy(picture[None])
                alone = client.infer(MODEL, [given]).as_numpy("output_0")[0]
                assert np.allclose(alone, logits, atol=1e-4)

    await asyncio.to_thread(ask)
    (instance,) = (await gateway.read("/instances"))["instances"]
    assert (instance["state"], instance["in_flight"]) == ("READY", 0)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_drained_graph_is_sent_nothing_and_comes_back(gateway: Gateway) -> None:
    status, _ = await gateway.change("PUT", f"/instances/{INSTANCE}/drain", {"force": True})
    assert status == 200
    await gateway.routes(MODEL, {"1": 100})
    inputs, outputs, _ = tensors(1, binary=True)

    def ask() -> Any:
        with client_of(gateway.url) as client:
            return client.infer(MODEL, inputs, outputs=outputs)

    from tritonclient.utils import InferenceServerException

    # The gateway's own refusal, in the words of the protocol.
    with pytest.raises(InferenceServerException, match=MODEL) as caught:
        await asyncio.to_thread(ask)
    assert caught.value.status() == "503"
    after = len(gateway.lines)
    status, _ = await gateway.change("DELETE", f"/instances/{INSTANCE}/drain")
    assert status == 200
    await gateway.ready(INSTANCE, after=after)
    await gateway.routes(MODEL, {"1": 100})
    assert (await asyncio.to_thread(ask)).as_numpy("output_1").shape == (1,)


@pytest.mark.asyncio(loop_scope="module")
async def test_it_ends_with_0_and_takes_its_instance_along(
    gateway: Gateway, tmp_path: Path
) -> None:
    assert await gateway.end() == 0
