"""A build without a compiler, or with one that fails, is plain Python and whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"SLUICEGATE_PURE": "1"}, ""),
        ({"CC": "no-such-compiler"}, "a C compiler (no-such-compiler) is not installed"),
        ({"CC": "false"}, "the C compiler failed"),
    ],
    ids=["not wanted", "no compiler", "a compiler that fails"],
)
def test_the_build_goes_on_with_plain_python(
    changed: dict[str, str], said: str, tmp_path: Path
) -> None:
    built = tmp_path / "lib"
    done = subprocess.run(
        [
            *(sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path), "build"),
            *("--build-lib", str(built), "--build-temp", str(tmp_path / "objects")),
        ],
        cwd=ROOT,
        env={**os.environ, **changed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said in done.stderr
    assert ("stays plain Python" in done.stderr) == bool(said)
    assert (built / "gateway" / "wire" / "heads.py").is_file()
    assert list(built.rglob("*.so")) == []
