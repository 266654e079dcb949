"""What each preset makes of a command line that its server's documentation gives."""

import pytest

from backends.external.commands import settle
from backends.external.presets import PLAIN, PRESETS, Protocol
from tests.backends.external.test_commands import given

VLLM = ("vllm-mindspore", "serve", "/models/q", "--served-model-name", "{model}")


@pytest.mark.parametrize("name", ["vllm-mindspore", "mindformers"])
def test_a_vllm_is_told_its_port_and_asked_there(name: str) -> None:
    command = (*VLLM, "--host", "{host}", "--port", "{port}")
    made = settle(given(preset=name, command=command))
    port = str(made.upstream.port)
    assert made.command == (*VLLM[:-1], "qwen", "--host", "127.0.0.1", "--port", port)
    base = f"http://127.0.0.1:{port}"
    assert (made.health, made.models, made.metrics) == (
        f"{base}/health",
        f"{base}/v1/models",
        f"{base}/metrics",
    )


def test_mindformers_are_those_of_vllm_with_their_models_chosen() -> None:
    plain, chosen = PRESETS["vllm-mindspore"], PRESETS["mindformers"]
    assert chosen.environment == {"vLLM_MODEL_BACKEND": "MindFormers"}
    assert (chosen.health, chosen.models, chosen.metrics) == (
        plain.health,
        plain.models,
        plain.metrics,
    )


def test_mindie_is_asked_at_three_ports_and_told_nothing_on_its_command_line() -> None:
    made = settle(given(preset="mindie", command=("./bin/mindieservice_daemon",)))
    assert made.command == ("./bin/mindieservice_daemon",)
    assert made.base == "http://127.0.0.1:1025"
    assert made.health == "http://127.0.0.1:1026/v2/health/ready"
    assert made.models == "http://127.0.0.1:1025/v1/models"
    assert made.metrics == "http://127.0.0.1:1027/metrics"
    assert made.environment == {"MIES_SERVICE_MONITOR_MODE": "1"}


@pytest.mark.parametrize("name", ["vllm-mindspore", "mindformers"])
def test_a_server_that_is_told_no_port_and_has_none_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="say where the server listens"):
        settle(given(preset=name, command=VLLM))


def test_a_graph_is_asked_for_by_its_name_and_has_no_metrics() -> None:
    made = settle(given(protocol="kserve"))
    assert made.protocol is Protocol.KSERVE
    assert made.models == f"{made.base}/v2/models/qwen"
    assert made.metrics == PLAIN[Protocol.KSERVE].metrics == ""
