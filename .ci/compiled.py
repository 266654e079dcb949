"""Runs a command with the compiled data plane of this tree in front; compiles it when it is new.

    .ci/compiled.py [--must] [COMMAND...]

Nothing is ever compiled in place: an extension beside an edited source would win, silently. What is
compiled stands in `var/compiled/DIGEST`, where DIGEST covers every file that counts and the Python,
so it is found again, or it is out of date and not found. It holds `gateway` whole: packages without
a compiled module are links to the tree, the others are copies beside their extensions. Where
nothing can be compiled the command runs as it is, or not at all with --must. Without a command,
prints the folder.
"""

import argparse
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
WHERE: Final = ROOT / "var" / "compiled"
KEPT: Final = 3  # the newest folders: a gateway may still run on the one before


def packages() -> list[str]:
    """Those of gateway that hold compiled modules."""
    names = runpy.run_path(str(ROOT / "gateway" / "native.py"))["NATIVE"]
    return sorted({name.split(".")[1] for name in names if name.count(".") == 2})


def digest() -> str:
    """Of everything that the compiled folder depends on."""
    top = sorted(path for path in (ROOT / "gateway").iterdir() if path.name != "__pycache__")
    sources = [ROOT / "setup.py", Path(__file__), *(path for path in top if path.is_file())]
    for package in packages():
        sources += sorted((ROOT / "gateway" / package).glob("*.py"))
    total = hashlib.sha256(repr([path.name for path in top]).encode())
    for path in sources:
        total.update(f"{path.relative_to(ROOT)}\n{path.stat().st_size}\n".encode())
        total.update(path.read_bytes())
    with suppress(PackageNotFoundError):
        total.update(version("mypy").encode())
    total.update(f"{sys.version} {sys.platform} {os.uname().machine} {ROOT}".encode())
    return total.hexdigest()[:16]


def build(folder: Path) -> bool:
    """Whether the folder is there now. Atomic: it is made elsewhere, and moved."""
    WHERE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=WHERE) as made:
        tree = Path(made) / "tree"
        command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", made]
        command += ["build", "--build-lib", str(tree), "--build-temp", f"{made}/objects"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode or not list(tree.glob("*.so")):
            print(done.stdout, end="", file=sys.stderr)
            return False
        slim(tree)
        with suppress(OSError):  # another one was faster
            tree.rename(folder)
    for old in sorted(WHERE.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return True


def slim(tree: Path) -> None:
    """Leave in the built tree what is compiled, and link the rest of gateway to the sources."""
    kept = set(packages())
    for path in tree.iterdir():
        if path.is_dir() and path.name != "gateway":
            shutil.rmtree(path)
    for path in (tree / "gateway").iterdir():
        if path.is_dir() and path.name not in kept:
            shutil.rmtree(path)
            path.symlink_to(ROOT / "gateway" / path.name)


def main() -> None:
    parser = argparse.ArgumentParser(prog=".ci/compiled.py", description=__doc__)
    parser.add_argument("--must", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    folder = WHERE / digest()
    if folder.is_dir():
        os.utime(folder)  # used: not among the oldest
    elif not build(folder) and given.must:
        sys.exit("the data plane has to be compiled for this")
    if not given.command:
        print(folder if folder.is_dir() else "")
        return
    environment = dict(os.environ)
    if folder.is_dir():
        # The tree itself comes second (for `tests`), the current folder not at all: not by
        # `python -m`, in no child.
        paths = [str(folder), str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        environment["PYTHONSAFEPATH"] = "1"
    os.execvpe(given.command[0], given.command, environment)


if __name__ == "__main__":
    main()
