"""What an agent is started with.

Floor 0, pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.external.presets import Protocol
from backends.settings import Address, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(Terms):
    """Places are whole URLs here."""

    command: tuple[str, ...]
    upstream: Address  # where the server answers; its port is known
    protocol: Protocol
    health: str
    models: str
    metrics: str  # empty: it has none
    environment: Mapping[str, str] = field(default_factory=dict)  # of the server, beside our own
    verify: str = ""  # path of the verification request; empty: the first that is there
    verify_prompt: str = "Hello"
    warm_up: tuple[int, ...] = (50, 300, 1000)  # words of the samples: a bucket of lengths each
    key: str = field(default="", repr=False)  # sent as a bearer token with our own questions
    max_concurrency: int = 256  # requests it runs at once
    load_timeout_s: float = 1800.0  # from its start to READY
    verify_timeout_s: float = 300.0  # the first answer may have to compile
    again_s: float = 1.0  # between two questions of which the first was answered badly
    health_interval_s: float = 2.0
    health_timeout_s: float = 5.0
    health_failures: int = 3  # in a row, once READY: ERROR
    kill_after_s: float = 5.0  # from SIGTERM to SIGKILL

    @property
    def base(self) -> str:
        return f"http://{self.upstream.reached_at(self.upstream.port, '')}"
