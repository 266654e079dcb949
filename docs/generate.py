"""Writes the parts of README.md and docs/ that are drawn from the code: `make docs`.

Floor 5.
Each part stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->`; a test fails when one of
them is not what this file would write.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from admin.openapi import OPERATIONS
from gateway.errors import REFUSALS
from gateway.rollout.machine import diagram
from gateway.telemetry import fleet, metrics
from sluicegate.v1.states import PROGRESS, TRANSITIONS, Phase, State

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
ROLLOUTS: Final = ROOT / "docs" / "rollouts.md"
SOURCES: Final = {"sluicegate": "proto/sluicegate", "gateway": "gateway", "backends": "backends",
                  "admin": "admin"}  # fmt: skip

# Folders in the order in which they are best read; imports decide inside and between them.
TASTE: Final = (
    "proto/sluicegate/",
    "gateway/records.py",
    "gateway/errors.py",
    "gateway/problems.py",
    "gateway/places.py",
    "gateway/config_values.py",
    "gateway/config_tables.py",
    "gateway/config_crossed.py",
    "gateway/config.py",
    "gateway/messages.py",
    "gateway/native.py",
    "gateway/wire/",
    "gateway/routing/",
    "gateway/state/",
    "gateway/dataplane/",
    "gateway/control.py",
    "gateway/store/",
    "gateway/rollout/",
    "gateway/fleet/",
    "gateway/launch/",
    "gateway/telemetry/",
    "gateway/validation/",
    "gateway/controlplane/",
    "admin/",
    "gateway/",
    "backends/",
)


def states() -> str:
    moves = [f"    {old.name} --> {new.name}" for old in State for new in sorted(TRANSITIONS[old])]
    phases = [f"`{phase.name.lower()}` {PROGRESS[phase]:.0f}" for phase in Phase]
    diagram = "\n".join(
        ["```mermaid", "stateDiagram-v2", "    [*] --> INITIALIZING", *moves, "```"]
    )
    return (
        f"{diagram}\n\nPhases, with the percent of the way at which each ends: {', '.join(phases)}."
    )


def phases() -> str:
    return f"```mermaid\n{diagram()}\n```"


def errors() -> str:
    rows = [
        f"| {row.status} | `{row.code}` | {row.client_may} |"
        for row in sorted(REFUSALS.values(), key=lambda row: (row.status, row.code))
    ]
    return "\n".join(["| status | code | the client may |", "|---|---|---|", *rows])


def metric_rows() -> str:
    questions = {**metrics.QUESTIONS, **fleet.QUESTIONS}
    rows = [f"| `{name}` | {question} |" for name, question in sorted(questions.items())]
    return "\n".join(["| metric | the question it answers |", "|---|---|", *rows])


def admin_calls() -> str:
    rows = [f"| `{one.method} {one.path}` | {one.summary} |" for one in OPERATIONS]
    return "\n".join(["| call | does |", "|---|---|", *rows])


# --- reading order -------------------------------------------------------------------------------


def files() -> list[str]:
    """Every source file of the product, as a path from the root."""
    found = [
        path.relative_to(ROOT).as_posix()
        for folder in SOURCES.values()
        for path in (ROOT / folder).rglob("*.py")
    ]
    return sorted(f for f in found if not f.endswith("__init__.py") and "_pb2" not in f)


def module(path: str) -> str:
    return path.removeprefix("proto/").removesuffix(".py").replace("/", ".")


def imports(path: str) -> set[str]:
    """Dotted names that the file may load: `from a import b` counts as `a` and as `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def in_order(paths: list[str]) -> Iterator[str]:
    """The paths, each behind all that it imports, otherwise as TASTE has them."""
    by_module = {module(path): path for path in paths}
    needs = {path: {by_module[m] for m in imports(path) & by_module.keys()} for path in paths}
    left = sorted(paths, key=_taste)
    told: set[str] = set()
    while left:
        ready = next((path for path in left if needs[path] <= told), None)
        if ready is None:
            raise SystemExit(f"these import each other in a circle: {left}")
        left.remove(ready)
        told.add(ready)
        yield ready


def _taste(path: str) -> tuple[int, str]:
    return next(n for n, start in enumerate(TASTE) if path.startswith(start)), path


def first_line(path: str) -> str:
    text = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    return text.split("\n\n")[0].replace("\n", " ").rstrip(".").rstrip(":")


def reading_order() -> str:
    return "\n".join(f"- `{path}` - {first_line(path)}" for path in in_order(files()))


Parts = dict[str, Callable[[], str]]
PARTS: Final[dict[Path, Parts]] = {
    README: {
        "states": states,
        "errors": errors,
        "metrics": metric_rows,
        "admin": admin_calls,
        "reading order": reading_order,
    },
    ROLLOUTS: {"phases": phases},
}


def filled(path: Path) -> str:
    """The text of the file with every part as it should be."""
    text = path.read_text()
    for name, draw in PARTS[path].items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"{path.name} must have one part named {name}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{draw()}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    for file in PARTS:
        file.write_text(filled(file))
