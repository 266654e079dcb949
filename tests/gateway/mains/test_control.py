from pathlib import Path

from gateway.config import parse
from gateway.mains.control import _about, arguments
from tests.gateway.fleet.builders import STATICS


def given(run_dir: Path) -> list[str]:
    fds = [f"--{name}-fd=3" for name in ("segment", "life", "supervisor", "door", "admin")]
    rest = ["--config=c.toml", f"--run-dir={run_dir}", "--registry=127.0.0.1:1", "--parent=42"]
    return fds + rest


def test_ports_that_the_system_chose_are_read_where_the_supervisor_wrote_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "gateway.json").write_text('{"listen": ["127.0.0.1:40000"]}')
    about = _about(arguments(given(tmp_path)), parse(STATICS))
    assert (about.pid, about.listen) == (42, ("127.0.0.1:40000",))
    assert about.started == (tmp_path / "gateway.json").stat().st_mtime


def test_without_that_file_the_config_is_what_we_know(tmp_path: Path) -> None:
    about = _about(arguments(given(tmp_path)), parse(STATICS))
    assert about.listen == ("127.0.0.1:8080",)
