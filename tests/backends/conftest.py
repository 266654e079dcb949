"""Snapshots that tests of real engines run on."""

from pathlib import Path

import pytest

from backends.errors import SnapshotInvalid
from backends.snapshots.manifest import LlmManifest
from backends.snapshots.repository import Repository, Snapshot
from tests.tiny import write_tiny_folder

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL, VERSION = "smollm2-135m-instruct", "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The real model comes first: the first engine of a process alone can keep what it compiles,
    and whoever starts the model later finds it there."""
    items.sort(key=lambda item: "smollm2" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def smollm2() -> Snapshot:
    """The real model, as `make models` imports it."""
    root = REPOSITORY / "var" / "models"
    try:
        return Repository(root).locate(MODEL, VERSION)
    except SnapshotInvalid as exc:
        pytest.fail(f"this test needs {MODEL} {VERSION}: run `make models` first ({exc})")


@pytest.fixture(scope="session")
def compile_cache() -> Path:
    """Shared with `make run`, so that the real model compiles once on a machine."""
    return REPOSITORY / "var" / "cache"


def tiny_snapshot(folder: Path, architecture: str, max_seq_len: int, slots: int) -> Snapshot:
    """A random model of two layers, without the checksums that an import would have written."""
    write_tiny_folder(folder, architecture, tied=architecture == "llama")
    manifest = LlmManifest(
        model=f"tiny-{architecture}",
        version="1",
        engine="llm",
        architecture=architecture,
        dtype="float32",
        max_seq_len=max_seq_len,
        slots=slots,
        kv_policy="preallocated",
        memory_needed_bytes=1,
        source="random",
        created="2026-01-01T00:00:00Z",
        files=(),
    )
    return Snapshot(folder, manifest)
