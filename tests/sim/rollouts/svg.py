"""A line chart as SVG text: the same figures give the same bytes.

Floor 1, pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 400
LEFT, RIGHT, TOP, BOTTOM = 64, 168, 40, 56
COLOURS: Final = ("#1f5fa8", "#c0392b", "#2e8b57", "#b8860b", "#6a4c93", "#555555")
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "1 2", "4 4")  # told apart without colours, too


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    ticks: tuple[float, ...]  # first and last are the ends
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """From 0 to 1."""
        low, high = self.ticks[0], self.ticks[-1]
        value = min(max(value, low), high)
        if self.logarithmic:
            return log10(value / low) / log10(high / low)
        return (value - low) / (high - low)


def chart(title: str, across: Axis, up: Axis, lines: Sequence[Line]) -> str:
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value: float) -> float:
        return LEFT + wide * across.place(value)

    def y(value: float) -> float:
        return TOP + tall * (1 - up.place(value))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in across.ticks:
        parts.append(_rule(x(tick), TOP, x(tick), TOP + tall))
        parts.append(_text(x(tick), TOP + tall + 18, f"{tick:g}", "middle"))
    for tick in up.ticks:
        parts.append(_rule(LEFT, y(tick), LEFT + wide, y(tick)))
        parts.append(_text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end"))
    parts.append(_text(LEFT + wide / 2, HEIGHT - 14, across.name, "middle"))
    middle = f'transform="rotate(-90 16 {TOP + tall / 2:g})"'
    parts.append(_text(16, TOP + tall / 2, up.name, "middle", middle))
    for at, line in enumerate(lines):
        colour, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line.points)
        parts.append(f'<polyline points="{path}" {style}/>')
        key, level = LEFT + wide + 12, TOP + 10 + 20 * at
        parts.append(f'<polyline points="{key},{level} {key + 26},{level}" {style}/>')
        parts.append(_text(key + 32, level + 4, line.name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
