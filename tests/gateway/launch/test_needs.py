from pathlib import Path

from gateway.launch.needs import read_needs


def test_needs_come_from_manifests_and_a_broken_one_holds_nothing_back(tmp_path: Path) -> None:
    texts = {"1": "memory_needed_bytes = 5\n", "2": "not = [toml", "3": "model = 'm'\n"}
    for version, text in texts.items():
        folder = tmp_path / "m" / version
        folder.mkdir(parents=True)
        (folder / "manifest.toml").write_text(text)
    pairs = [("m", version) for version in ("1", "2", "3", "4")]
    assert read_needs(tmp_path, pairs) == {
        ("m", "1"): 5,
        **{("m", version): 0 for version in ("2", "3", "4")},
    }
