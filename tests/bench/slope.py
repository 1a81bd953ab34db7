"""A slope: how what is measured grows with the work; a plot in SVG, both axes by tenfolds."""

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _EDGE, _LEGEND = 560, 340, 56, 220
_COLOURS = ("#0b6bcb", "#c4320a", "#2e7d32", "#8e24aa", "#6d4c41", "#00838f", "#9e9d24")


def drawn(lines: Mapping[str, Sequence[tuple[float, float]]], *, across: str, upward: str) -> str:
    """Return the plot. lines: points by the name that stands in the legend; all are above 0.

    across, upward: what is counted along each axis.
    """
    points = [point for line in lines.values() for point in line]
    wide, high = _scale([x for x, _ in points]), _scale([y for _, y in points])
    parts = [*_axis(wide, is_across=True), *_axis(high, is_across=False)]
    parts += _titles(across, upward)
    for n, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[n % len(_COLOURS)]
        path = " ".join(f"{_x(x, wide):.1f},{_y(y, high):.1f}" for x, y in line)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        at = _EDGE + 20 * n
        parts.append(f'<text x="{_WIDTH + 12}" y="{at}" fill="{colour}">{escape(name)}</text>')
    style = 'font-family="sans-serif" font-size="12"'
    box = f'viewBox="0 0 {_WIDTH + _LEGEND} {_HEIGHT}"'
    ground = f'<rect width="{_WIDTH + _LEGEND}" height="{_HEIGHT}" fill="#ffffff"/>'
    inner = "\n".join([ground, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {style}>\n{inner}\n</svg>\n'


def _titles(across: str, upward: str) -> list[str]:
    middle = _HEIGHT / 2
    return [
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>',
        f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">'
        f"{escape(upward)}</text>",
    ]


def _scale(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten that the values lie between."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _x(value: float, scale: tuple[int, int]) -> float:
    low, high = scale
    return _EDGE + (_WIDTH - 2 * _EDGE) * (math.log10(value) - low) / (high - low)


def _y(value: float, scale: tuple[int, int]) -> float:
    low, high = scale
    room = _HEIGHT - 2 * _EDGE
    return _HEIGHT - _EDGE - room * (math.log10(value) - low) / (high - low)


def _axis(scale: tuple[int, int], *, is_across: bool) -> list[str]:
    found: list[str] = []
    for power in range(scale[0], scale[1] + 1):
        said = f"{10.0**power:g}"
        if is_across:
            x = _x(10.0**power, scale)
            line = f'x1="{x:.1f}" x2="{x:.1f}" y1="{_EDGE}" y2="{_HEIGHT - _EDGE}"'
            where = f'x="{x:.1f}" y="{_HEIGHT - _EDGE + 18}" text-anchor="middle"'
        else:
            y = _y(10.0**power, scale)
            line = f'x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="{y:.1f}" y2="{y:.1f}"'
            where = f'x="{_EDGE - 6}" y="{y + 4:.1f}" text-anchor="end"'
        found += [f'<line stroke="#cccccc" {line}/>', f"<text {where}>{said}</text>"]
    return found
