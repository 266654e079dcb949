"""Servers that are known: where each answers what, and what it calls its numbers.

Floor 0, pure.
All of it is from their own documentation; what a preset says, an option on the command line may say
otherwise. A place is a path on the server, or a whole URL where another port answers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Protocol(StrEnum):
    OPENAI = "openai"
    KSERVE = "kserve"


@dataclass(frozen=True, slots=True)
class Preset:
    protocol: Protocol
    health: str  # 200 once it can answer
    models: str  # what it serves
    metrics: str  # Prometheus' text; empty: it has none
    upstream: str = ""  # HOST:PORT it listens on unless told otherwise; empty: {port} says
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


PLAIN: Final[Mapping[Protocol, Preset]] = MappingProxyType(
    {
        Protocol.OPENAI: Preset(Protocol.OPENAI, "/health", "/v1/models", "/metrics"),
        # {model}: of the command line.
        Protocol.KSERVE: Preset(Protocol.KSERVE, "/v2/health/ready", "/v2/models/{model}", ""),
    }
)

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        # vLLM's own server: docs.vllm.ai, usage/metrics; mindspore.cn, vllm_mindspore, quick start.
        "vllm-mindspore": PLAIN[Protocol.OPENAI],
        # hiascend.com, MindIE LLM Development Guide: service plane on `port`, management on
        # `managementPort`, metrics on `metricsPort` of its config.json; these are its defaults.
        "mindie": Preset(
            Protocol.OPENAI,
            health="http://127.0.0.1:1026/v2/health/ready",
            models="/v1/models",
            metrics="http://127.0.0.1:1027/metrics",
            upstream="127.0.0.1:1025",
            # Without it MindIE answers no metrics.
            environment=MappingProxyType({"MIES_SERVICE_MONITOR_MODE": "1"}),
        ),
        # mindspore.cn, mindformers, service deployment: vLLM-MindSpore with its models.
        "mindformers": Preset(
            Protocol.OPENAI,
            health="/health",
            models="/v1/models",
            metrics="/metrics",
            environment=MappingProxyType({"vLLM_MODEL_BACKEND": "MindFormers"}),
        ),
    }
)
