from pathlib import Path

import pytest

from gateway.launch.needs import read_needs, where


def test_needs_come_from_manifests_and_a_broken_one_holds_nothing_back(tmp_path: Path) -> None:
    texts = {"1": "memory_needed_bytes = 5\n", "2": "not = [toml", "3": "model = 'm'\n"}
    for version, text in texts.items():
        folder = tmp_path / "m" / version
        folder.mkdir(parents=True)
        (folder / "manifest.toml").write_text(text)
    pairs = [("m", version) for version in ("1", "2", "3", "4")]
    assert read_needs(tmp_path, pairs, ["cpu"]) == {
        ("m", "1"): 5,
        **{("m", version): 0 for version in ("2", "3", "4")},
    }


def test_what_was_measured_here_goes_before_what_the_manifest_computes(tmp_path: Path) -> None:
    for version in ("1", "2", "3", "4"):
        folder = tmp_path / "m" / version
        folder.mkdir(parents=True)
        (folder / "manifest.toml").write_text("memory_needed_bytes = 5\n")
    notes = {
        "1": "[bytes]\ncpu = 3\nascend = 9\n",
        "2": "[bytes]\nascend = 9\n",
        "3": "not = [toml",
    }
    for version, text in notes.items():
        (tmp_path / "m" / f".measured-{version}.toml").write_text(text)
    pairs = [("m", version) for version in ("1", "2", "3", "4")]
    here = read_needs(tmp_path, pairs, ["cpu"])
    assert [here[pair] for pair in pairs] == [3, 5, 5, 5]
    both = read_needs(tmp_path, pairs, ["cpu", "ascend"])
    assert [both[pair] for pair in pairs] == [9, 9, 5, 5]
    assert read_needs(tmp_path, pairs, []) == dict.fromkeys(pairs, 5)


@pytest.mark.parametrize(
    ("root", "folder"),
    [
        ("var/models", "var/models"),
        ("file:///mnt/models", "/mnt/models"),
        ("s3://bucket/models", "var/cache/snapshots"),
    ],
)
def test_of_a_repository_elsewhere_what_was_fetched_is_looked_at(root: str, folder: str) -> None:
    assert where(root, "var/cache") == Path(folder)
