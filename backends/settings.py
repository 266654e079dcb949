"""What one instance is started with.

Floor 0, pure.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.snapshots.roots import Root

WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int  # 0: any free one

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`host:port`, an IPv6 host in brackets.

        Raises: ValueError with the rule.
        """
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or (":" in host and not bracketed):
            raise ValueError(f"must be host:port, not {text!r}")
        if not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"must end in a port from 0 to 65535, not {text!r}")
        return cls(host, int(port))

    def reached_at(self, port: int, advertise: str) -> str:
        """What others dial: the advertised host, else the one it is bound to."""
        host = advertise or self.host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Where any instance listens, whom it tells, and how long it waits; whatever it runs."""

    model: str
    version: str
    instance_id: str
    http: Address = Address("127.0.0.1", 0)
    grpc: Address = Address("127.0.0.1", 0)
    advertise: str = ""  # host that others reach it at; needed where it is bound to a wildcard
    registry: str = ""  # host:port of the gateway's Registry; empty: it is found by other means
    launch_token: str = ""
    device: str = ""  # the name in [[device]] of the gateway's config.toml
    device_kind: str = "cpu"
    queue_max: int = 16  # requests that wait here for a slot; the gateway's queue is the long one
    grace_s: float = 30.0  # of a drain that names none, and of SIGTERM
    error_linger_s: float = 30.0  # in ERROR, before it exits: for polls to hear the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Terms):
    root: Root  # of the model repository
    cache_root: Path = Path("var/cache")
    threads: int = 0  # 0: the engine's own choice
    slots: int | None = None  # None: what the manifest promises
    max_seq_len: int | None = None
    prefix_reuse: bool = True  # what a slot still holds of a prompt is not computed again
    memory_gb: float = 0.0  # that the load will take; 0: as measured, else by the manifest
    load_threads: int = 0  # CPUs that it may use until it is warmed up; 0: all
    load_nice: int = 0  # how far it steps back behind others until then
    warmup_rounds: int = 0  # over the samples; the command line's own default is 3
    warmup_samples: Path | None = None  # recorded requests, one JSON document a line
    warmup_baseline_ms: float = 0.0  # between two tokens; slower than that is not READY. 0: none
