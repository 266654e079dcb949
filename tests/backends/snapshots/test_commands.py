import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from backends.snapshots import measured
from backends.snapshots.commands import models
from backends.snapshots.repository import Repository
from tests.backends.mindir_files import write_graph
from tests.tiny import write_tiny_folder


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiny_folder(Path("tiny"))


def _run(*words: str) -> Result:
    return CliRunner().invoke(models, words)


def _import(*options: str, version: str = "1", source: str = "tiny") -> Result:
    words = ("import", source, "--model", "tiny", "--version", version)
    return _run(*words, "--max-seq-len", "128", *options)


def test_an_import_tells_size_memory_and_promises() -> None:
    done = _import()
    assert done.exit_code == 0, done.output
    assert done.stdout == (
        "imported tiny 1: 0.4 MB, needs 2,500.6 MB of memory for 4 slots of 128\n"
    )
    assert "converting weights (0.4 MB) ..." in done.stderr
    assert Repository(Path("var/models")).holds("tiny", "1")


def test_the_same_again_says_so_and_with_if_missing_says_nothing() -> None:
    _import()
    again = _import()
    assert (again.exit_code, again.stdout) == (
        0,
        "tiny 1 is there already, made from the same source\n",
    )
    silent = _import("--if-missing")
    assert (silent.exit_code, silent.stdout) == (0, "")


def test_other_content_is_refused_also_with_if_missing() -> None:
    _import()
    refused = _import("--if-missing", "--slots", "5")
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "Error: tiny 1 exists and a version never changes, but it has slots 4" in refused.stderr


def test_a_source_that_is_no_model_is_a_failure_with_a_sentence() -> None:
    Path("tiny/config.json").write_text("{")
    failed = _import()
    assert failed.exit_code == 1
    assert "Error: config.json is not JSON" in failed.stderr
    assert not Repository(Path("var/models")).holds("tiny", "1")


def test_a_root_that_cannot_be_written_is_a_failure_with_its_path() -> None:
    Path("file").write_text("")
    failed = _import("--root", "file/models")
    assert failed.exit_code == 1
    assert "Error: file/models: Not a directory" in failed.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("import", "gone", "--model", "a", "--version", "1"),
        ("import", "gone.gguf", "--model", "a", "--version", "1"),
        ("import", "pypi:a", "--model", "a", "--version", "1"),
        ("import", "tiny", "--model", "../a", "--version", "1"),
        ("import", "tiny", "--model", "a", "--version", ".."),
        ("import", "tiny", "--model", "a"),
        ("import", "tiny", "--model", "a", "--version", "1", "--dtype", "int8"),
        ("import", "tiny", "--model", "a", "--version", "1", "--slots", "0"),
        ("show", "a/b", "1"),
        ("remove", "a", ".."),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_code_2(words: tuple[str, ...]) -> None:
    assert _run(*words).exit_code == 2


def test_without_the_extra_import_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "backends.snapshots.importing")
    monkeypatch.setitem(sys.modules, "backends.snapshots.gguf", None)
    failed = _import()
    assert failed.exit_code == 1
    assert "is not installed: pip install 'sluicegate[mindspore]'" in failed.stderr


def _graph(*options: str) -> Result:
    file = write_graph(Path("mnist.mindir"))
    return _run("import", str(file), "--model", "mnist", "--version", "1", *options)


def test_a_graph_is_imported_with_its_batch_and_delay() -> None:
    done = _graph("--max-batch", "16", "--max-delay-ms", "5")
    assert (done.exit_code, done.stdout) == (
        0,
        "imported mnist 1: 0.0 MB, needs 1,073.7 MB of memory for batches of up to 16\n",
    )
    shown = _json("show", "mnist", "1")
    assert (shown["max_batch"], shown["max_delay_ms"], shown["engine"]) == (16, 5.0, "mindir")
    assert shown["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert _run("list").stdout.splitlines()[1].split()[:4] == ["mnist", "1", "FP32", "16"]
    assert _run("verify").exit_code == 0


def test_options_of_another_kind_of_source_are_refused_by_name() -> None:
    refused = _graph("--slots", "4")
    assert (refused.exit_code, "--slots says nothing of such" in refused.stderr) == (2, True)
    refused = _import("--max-batch", "4")
    assert (refused.exit_code, "--max-batch says nothing of such" in refused.stderr) == (2, True)


# --- list, show ---


def _json(*words: str) -> Any:
    return json.loads(_run(*words, "--json").stdout)


def test_list_shows_each_version_on_one_line() -> None:
    _import()
    _import(version="2")
    lines = [line.split() for line in _run("list").stdout.splitlines()]
    assert lines[0] == ["model", "version", "dtype", "slots", "files", "memory"]
    assert [line[:6] for line in lines[1:]] == [
        ["tiny", "1", "float32", "4", "x", "128"],
        ["tiny", "2", "float32", "4", "x", "128"],
    ]
    assert [row["version"] for row in _json("list")] == ["1", "2"]


def test_list_never_wraps_a_name_in_a_pipe() -> None:
    _import(version="v" * 100)
    assert _run("list").stdout.splitlines()[1].split()[1] == "v" * 100


def test_list_of_nothing_is_not_a_failure() -> None:
    done = _run("list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert _json("list") == []


def test_list_shows_what_is_unreadable_with_its_reason() -> None:
    Path("var/models/tiny/1").mkdir(parents=True)
    done = _run("list")
    assert "unreadable" in done.stdout
    assert "manifest.toml is missing" in done.stderr
    assert "manifest.toml is missing" in _json("list")[0]["problem"]


def test_show_tells_everything_in_the_manifest() -> None:
    _import()
    manifest = Repository(Path("var/models")).locate("tiny", "1").manifest
    text = _run("show", "tiny", "1").stdout
    shown = _json("show", "tiny", "1")
    assert shown["digest"] == manifest.digest
    assert {entry["name"]: entry["sha256"] for entry in shown["files"]} == {
        entry.name: entry.sha256 for entry in manifest.files
    }
    for word in (manifest.source, manifest.digest, *(entry.sha256 for entry in manifest.files)):
        assert word in text


def test_what_was_measured_goes_before_what_was_computed() -> None:
    _import()
    assert _json("show", "tiny", "1")["measured_bytes"] == {}
    measured.keep(Path("var/models/tiny/1"), "cpu", 1_234_500_000)
    assert _run("list").stdout.splitlines()[1].split()[-2:] == ["1,234.5", "MB"]
    assert _json("list")[0]["measured_bytes"] == {"cpu": 1_234_500_000}
    assert "cpu 1234500000" in _run("show", "tiny", "1").stdout


def test_show_of_what_is_not_there_says_how_to_import_it() -> None:
    failed = _run("show", "tiny", "1")
    assert failed.exit_code == 1
    assert "sluicegate models import SOURCE --model tiny --version 1" in failed.stderr


# --- verify, remove ---


def _damage(version: str) -> None:
    folder = Path("var/models/tiny") / version
    folder.chmod(0o755)
    (folder / "config.json").chmod(0o644)
    (folder / "config.json").write_text("{}")


def test_verify_reads_all_or_one() -> None:
    _import()
    _import(version="2")
    _damage("2")
    assert _run("verify", "tiny", "1").exit_code == 0
    assert _run("verify", "tiny", "2").exit_code == 1
    done = _run("verify")
    assert done.exit_code == 1
    assert "tiny 1: every byte is as it was written\n" in done.stdout
    assert "tiny 2: var/models/tiny/2/config.json: has 2 bytes, not" in done.stdout
    verdicts = _json("verify", "tiny")
    assert [verdict["problem"] is None for verdict in verdicts] == [True, False]


def test_verify_of_what_is_not_there_is_a_failure() -> None:
    assert _run("verify", "tiny").exit_code == 1
    assert _run("verify").exit_code == 0


def test_remove_asks_first() -> None:
    _import()
    asked = CliRunner().invoke(models, ("remove", "tiny", "1"), input="n\n")
    assert asked.exit_code == 1
    assert "remove tiny 1 from var/models?" in asked.stderr
    assert Repository(Path("var/models")).holds("tiny", "1")
    agreed = CliRunner().invoke(models, ("remove", "tiny", "1"), input="y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "removed tiny 1\n")
    assert not Repository(Path("var/models")).holds("tiny", "1")


def test_remove_of_a_version_in_use_is_refused() -> None:
    _import()
    repository = Repository(Path("var/models"))
    with repository.hold(repository.locate("tiny", "1")):
        refused = _run("remove", "tiny", "1", "--yes")
    assert refused.exit_code == 1
    assert "tiny 1 is in use: drain and stop its instances first" in refused.stderr
    assert _run("remove", "tiny", "1", "--yes").exit_code == 0


def test_remove_of_what_is_not_there_is_a_failure() -> None:
    assert _run("remove", "tiny", "1", "--yes").exit_code == 1


CONFIG = """
[[model]]
name = "tiny"
weights = { "1" = 0 }
"""


def test_remove_of_a_version_that_a_config_names_is_refused_though_nothing_runs() -> None:
    for version in ("1", "2"):
        _import(version=version)
    Path("config.toml").write_text(CONFIG)
    refused = _run("remove", "tiny", "1", "--yes")
    assert refused.exit_code == 1
    assert "in use: config.toml names it in [[model]] weights; take it out there" in refused.stderr
    assert Repository(Path("var/models")).holds("tiny", "1")
    assert _run("remove", "tiny", "2", "--yes").exit_code == 0


def test_the_config_of_a_gateway_elsewhere_is_named_and_one_that_is_damaged_is_no_leave() -> None:
    _import()
    Path("gateway.toml").write_text(CONFIG)
    words = ("remove", "tiny", "1", "--yes", "--config", "gateway.toml")
    assert "gateway.toml names it" in _run(*words).stderr
    Path("gateway.toml").write_text("[[model]")
    assert "tiny 1 may be in use: gateway.toml:" in _run(*words).stderr
    assert _run(*words[:-1], "gone.toml").exit_code == 2
    Path("gateway.toml").write_text(CONFIG + '[repository]\nroot = "elsewhere"\n')
    assert _run(*words).exit_code == 0


# --- elsewhere ---


def test_every_command_works_on_a_store(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    root = ("--root", url)
    done = _import(*root)
    assert done.exit_code == 0, done.output
    assert f"upload to {url} (0.4 MB) ..." in done.stderr
    assert not Path("var").exists()
    assert _import(*root).stdout == "tiny 1 is there already, made from the same source\n"
    assert _run("list", *root).stdout.splitlines()[1].split()[:2] == ["tiny", "1"]
    assert _json("show", "tiny", "1", *root)["folder"] == f"{url}/tiny/1"
    assert "every byte is as it was written" in _run("verify", *root).stdout
    Path("config.toml").write_text(CONFIG + f'[repository]\nroot = "{url}"\n')
    assert "in use: config.toml" in _run("remove", "tiny", "1", "--yes", *root).stderr
    Path("config.toml").unlink()
    assert _run("remove", "tiny", "1", "--yes", *root).exit_code == 0
    assert _json("list", *root) == []


def test_a_url_of_files_is_a_folder(tmp_path: Path) -> None:
    assert _import("--root", f"file://{tmp_path}/models").exit_code == 0
    assert Repository(tmp_path / "models").holds("tiny", "1")


def test_a_store_nobody_knows_is_a_failure_with_a_sentence() -> None:
    failed = _run("list", "--root", "gopher://models")
    assert failed.exit_code == 1
    assert "Error: gopher://models: Protocol not known" in failed.stderr
