"""On which line of a TOML text each key stands, for people who have to mend one.

Floor 0, pure.
tomllib says what a text means and not where. This reads only as much of the grammar as a key needs,
a line at a time; what stands inside a value of one line has the line of that value.
"""

import re
from collections.abc import Mapping
from typing import Final

PART: Final = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
PATH: Final = rf"{PART}(?:\s*\.\s*{PART})*"
KEY: Final = re.compile(rf"\s*({PATH})\s*=")
TABLE: Final = re.compile(rf"\s*(\[\[?)\s*({PATH})\s*\]")
QUOTE_MARKS: Final = "\"'"
QUOTES: Final = ('"""', "'''")  # of strings that may go over several lines


def lines(text: str) -> dict[str, int]:
    """Line by dotted path, as problems spell it: `model[0].weights.1`."""
    found: dict[str, int] = {}
    rows: dict[str, int] = {}  # tables of each list so far
    table, waits_for = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if waits_for:
            waits_for = "" if line.count(waits_for) % 2 else waits_for
            continue
        head = TABLE.match(line)
        key = None if head else KEY.match(line)
        if head:
            table = _joined("", head[2], rows)
            if head[1] == "[[":
                bare = _bare(table)
                rows[bare] = rows.get(bare, -1) + 1
                table = f"{bare}[{rows[bare]}]"
            found.setdefault(table, number)
        elif key:
            found.setdefault(_joined(table, key[1], {}), number)
        waits_for = next((one for one in QUOTES if line.count(one) % 2), "")
    return found


def line_of(found: Mapping[str, int], path: str) -> int:
    """The line of the path, or of the nearest thing around it; 0 when there is none."""
    while path and path not in found:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return found.get(path, 0)


def _joined(table: str, path: str, rows: Mapping[str, int]) -> str:
    """The path in the table; a list of tables on the way means its last one."""
    for part in re.findall(PART, path):
        table = f"{table}.{part.strip(QUOTE_MARKS)}".lstrip(".")
        if table in rows:
            table = f"{table}[{rows[table]}]"
    return table


def _bare(table: str) -> str:
    """Without the number of the last of a list, which the table itself begins anew."""
    return re.sub(r"\[[0-9]+\]$", "", table)
