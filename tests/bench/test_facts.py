"""Facts name programs and versions, never this machine."""

from pathlib import Path

from tests.bench.facts import facts, installed, said
from tests.bench.loads import Sizes


def test_routers_are_found_with_their_versions(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("vllm_router-0.1.17", "sglang_router-0.3.2", "fastapi-0.1"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    assert installed(tmp_path) == [("sglang-router", "0.3.2"), ("vllm-router", "0.1.17")]
    assert installed(tmp_path / "none") == []


def test_a_program_that_is_not_there_has_no_version() -> None:
    assert said("no-such-proxy", "-v") == "no-such-proxy: none"


def test_the_facts_of_a_run_hold_its_length_and_load(tmp_path: Path) -> None:
    text = "\n".join(facts(4, Sizes(Path("sse")), (0.25, 1.5), tmp_path, 960))
    assert "4 rounds in 16 minutes" in text
    assert "0.2 before the run, 1.5 after" in text
    assert str(tmp_path) not in text
