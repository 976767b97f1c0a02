"""Plots as inline SVG: points, lines, logarithmic axes. Colours come from the page, so that it can be light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

WIDTH: Final = 560
HEIGHT: Final = 300
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 46
SERIES_MAX: Final = 8
"""How many series have a colour of their own."""


class Series(msgspec.Struct, frozen=True):
    """One line of a plot.

    Attributes:
        name: Its name in the legend.
        points: Pairs of x and y, in the order in which they are joined.
        joined: Whether a line joins them.
        marked: Whether each point has a mark.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True
    marked: bool = True


class Axis(msgspec.Struct, frozen=True):
    """One axis.

    Attributes:
        title: What it shows, with its unit.
        log: Whether it is logarithmic.
        zero: Whether it begins at 0; for linear ones.
    """

    title: str
    log: bool = False
    zero: bool = True


class _Scale:
    """Places values along an axis."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        self._log = axis.log
        self._start, self._end = start, end
        low, high = min(values), max(values)
        if axis.log:
            self.ticks = _decades(low, high)
            low, high = min(low, self.ticks[0]), max(high, self.ticks[-1])
            self._low, self._span = math.log10(low), math.log10(high) - math.log10(low) or 1.0
        else:
            low = min(0.0, low) if axis.zero else low
            self.ticks = _steps(low, high)
            low, high = min(low, self.ticks[0]), max(high, self.ticks[-1])
            self._low, self._span = low, high - low or 1.0

    def __call__(self, value: float) -> float:
        at = math.log10(value) if self._log else value
        return self._start + (at - self._low) / self._span * (self._end - self._start)


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if last - first <= 1:
        return [10.0**first * step for step in (1, 2, 5, 10)]
    stride = max(1, (last - first) // 6)
    return [10.0**power for power in range(first, last + 1, stride)]


def _steps(low: float, high: float) -> list[float]:
    span = high - low or abs(high) or 1.0
    raw = span / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.floor(low / step)
    return [number * step for number in range(first, math.ceil(high / step) + 1)]


def short(value: float) -> str:
    """A number as it stands at an axis."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def plot(series: Sequence[Series], x: Axis, y: Axis, label: str) -> str:
    """Draw series.

    Args:
        series: At most `SERIES_MAX`; points that a logarithmic axis cannot show are left out.
        x: The horizontal axis.
        y: The vertical axis.
        label: What the plot shows, for those who cannot see it.

    Returns:
        An SVG element with a legend where there are several series; an empty text where there is no point.
    """
    shown = [_visible(one, x, y) for one in series[:SERIES_MAX]]
    shown = [one for one in shown if one.points]
    if not shown:
        return ""
    across = _Scale([px for one in shown for px, _ in one.points], x, _LEFT, WIDTH - _RIGHT)
    up = _Scale([py for one in shown for _, py in one.points], y, HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(across, up, x, y)]
    parts.extend(_drawn(number, one, across, up) for number, one in enumerate(shown))
    legend = "" if len(shown) == 1 else _legend(shown)
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>{legend}</figure>"
    )


def _visible(series: Series, x: Axis, y: Axis) -> Series:
    points = tuple((px, py) for px, py in series.points if (not x.log or px > 0) and (not y.log or py > 0))
    return msgspec.structs.replace(series, points=points)


def _grid(across: _Scale, up: _Scale, x: Axis, y: Axis) -> str:
    parts = []
    for tick in up.ticks:
        at = up(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    for tick in across.ticks:
        at = across(tick)
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{short(tick)}</text>'
        )
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    base = HEIGHT - _BOTTOM
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>')
    parts.append(
        f'<text class="title" x="{(_LEFT + WIDTH - _RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(x.title)}</text>"
    )
    parts.append(
        f'<text class="title" transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.title)}</text>"
    )
    return "".join(parts)


def _drawn(number: int, series: Series, across: _Scale, up: _Scale) -> str:
    parts = []
    placed = [(across(px), up(py), px, py) for px, py in series.points]
    if series.joined and len(placed) > 1:
        path = " ".join(f"{'M' if place == 0 else 'L'}{ax:.1f} {ay:.1f}" for place, (ax, ay, _, _) in enumerate(placed))
        parts.append(f'<path class="s{number}" d="{path}"/>')
    if series.marked or len(placed) == 1:
        parts.extend(
            f'<circle class="s{number}" cx="{ax:.1f}" cy="{ay:.1f}" r="3.5">'
            f"<title>{escape(series.name)}: {short(px)}, {short(py)}</title></circle>"
            for ax, ay, px, py in placed
        )
    return "".join(parts)


def _legend(series: Sequence[Series]) -> str:
    items = "".join(f'<li class="s{number}">{escape(one.name)}</li>' for number, one in enumerate(series))
    return f'<ul class="legend">{items}</ul>'


def bars(rows: Sequence[tuple[str, float, float | None]], title: str) -> str:
    """Draw horizontal bars, each with the end of its interval.

    Args:
        rows: Name, value, and the upper end of the interval or None.
        title: What the bars show, with its unit.

    Returns:
        An SVG element; an empty text where there is no row.
    """
    if not rows:
        return ""
    high = max(max(value, end or 0.0) for _, value, end in rows) or 1.0
    step, left = 30, 190
    width = WIDTH - left - 70
    parts = []
    for place, (name, value, end) in enumerate(rows):
        top = place * step + 6
        length = value / high * width
        parts.append(f'<text class="tick" x="{left - 8}" y="{top + 14}" text-anchor="end">{escape(name[:28])}</text>')
        parts.append(f'<rect class="s0" x="{left}" y="{top}" width="{length:.1f}" height="18" rx="3"/>')
        if end is not None:
            at = left + end / high * width
            parts.append(
                f'<line class="whisker" x1="{left + length:.1f}" x2="{at:.1f}" y1="{top + 9}" y2="{top + 9}"/>'
            )
        place_of_text = left + max(length, (end or 0.0) / high * width) + 6
        parts.append(f'<text class="tick" x="{place_of_text:.1f}" y="{top + 14}">{short(value)}</text>')
    height = len(rows) * step + 26
    parts.append(f'<text class="title" x="{left}" y="{height - 4}">{escape(title)}</text>')
    size = f'viewBox="0 0 {WIDTH} {height}"'
    return f'<figure><svg {size} role="img" aria-label="{escape(title)}">{"".join(parts)}</svg></figure>'
