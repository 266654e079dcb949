"""Builds the package; where a C compiler is at hand, the data plane's modules become extensions.

pyproject.toml holds all metadata. Compiling is tried for wheels and for `setup.py build`, never for
editable installs: an extension beside an edited source would win, silently. Without a compiler,
Python's headers or mypyc, and with SLUICEGATE_PURE=1, the result is plain Python, same code.
"""

import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, LinkError, PlatformError

MYPY = ("--config-file=", "--namespace-packages", "--explicit-package-bases")  # strict: in `lint`
TAKES_S = 45  # on two cores; half of it is gcc -O3
FAILURES = (CompileError, ExecError, LinkError, PlatformError)


def plain(why: object) -> None:
    print(f"the data plane stays plain Python: {why}", file=sys.stderr)


def lacking() -> str:
    """The first thing that is missing for compiling; "" when all is there."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"a C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python.h (the development package of this Python)"
    return "" if find_spec("mypyc") else "mypyc (the package mypy)"


def extensions(folder: str) -> list[Extension]:
    """What to compile, as C in the folder; nothing when that is not wanted or not possible."""
    if not {"build", "bdist_wheel"} & set(sys.argv) or os.environ.get("SLUICEGATE_PURE") == "1":
        return []
    missing = lacking()
    if missing:
        plain(f"{missing} is not installed")
        return []
    from mypyc.build import mypycify

    print(f"compiling the data plane (about {TAKES_S} s)", file=sys.stderr, flush=True)
    names = runpy.run_path("gateway/native.py")["NATIVE"]
    given = [*MYPY, "--ignore-missing-imports", f"--cache-dir={folder}/mypy"]
    given += [name.replace(".", "/") + ".py" for name in names]
    try:
        # A C file for each module: they are compiled side by side. No debugging symbols: they
        # would hold the name of a folder that is gone.
        made: list[Extension] = mypycify(
            given, target_dir=folder, group_name="sluicegate", multi_file=True, debug_level="0"
        )
    except SystemExit as exc:  # how mypyc says what it cannot compile
        plain(f"mypyc gave up ({exc.code})")
        return []
    for extension in made:  # mypyc asks for -Werror; a newer compiler may warn of more
        extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-error"]
    return made


class CompileOrNot(build_ext):  # type: ignore[misc]  # setuptools is not typed
    """All of the extensions, or none of them: half of them would import what is not there."""

    extensions: list[Extension]

    def get_source_files(self) -> list[str]:
        return []  # the C is made anew each time, in a folder that is gone afterwards

    def build_extensions(self) -> None:
        compiler: Any = self.compiler
        one_by_one = compiler.compile
        cores = os.cpu_count() or 1

        def side_by_side(sources: list[str], *args: Any, **kwargs: Any) -> list[str]:
            with ThreadPoolExecutor(cores) as pool:
                found = pool.map(lambda source: one_by_one([source], *args, **kwargs), sources)
                return [path for paths in found for path in paths]

        compiler.compile = side_by_side
        super().build_extensions()

    def run(self) -> None:
        for old in Path(self.build_lib).rglob("*.so"):
            old.unlink()  # of a former build: that of a module no longer listed would win
        try:
            super().run()
        except FAILURES:
            plain("the C compiler failed")  # what it said stands above
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []
            self.distribution.ext_modules = []
            wheel: Any = self.distribution.get_command_obj("bdist_wheel", create=False)
            if wheel is not None:
                wheel.root_is_pure = True


with tempfile.TemporaryDirectory(prefix="sluicegate-") as folder:
    setup(ext_modules=extensions(folder), cmdclass={"build_ext": CompileOrNot})
