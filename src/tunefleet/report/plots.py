"""Plots of statistics: static SVG whose colours come from the style sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from tunefleet.report.scales import Scale, count_scale, value_scale
from tunefleet.report.units import format_count, significant

_WIDTH, _HEIGHT = 860, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 18, 30, 46
_ROW = 24
_TEXT_HEIGHT = 14
#: More labels than this do not fit below a histogram.
_LABELS = 24

Format = Callable[[float], str]


class Point(NamedTuple):
    """One mark of a scatter plot: `kind` is its class, `title` shows when it is pointed at."""

    x: float
    y: float
    kind: str
    title: str


class PlotLine(NamedTuple):
    """A line through points of a scatter plot, with its text at the left end."""

    points: tuple[tuple[float, float], ...]
    text: str


def histogram(counts: Mapping[int, int], name: str) -> str:
    """Bars of how often each whole number occurs, over all from the least to the greatest."""
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    y = count_scale(max(counts.values()))
    step = (_WIDTH - _LEFT - _RIGHT) / (high - low + 1)
    every = -(-(high - low + 1) // _LABELS)
    parts = [_open_tag(_HEIGHT, name), *_y_axis(y, format_tick, "records")]
    for value in range(low, high + 1):
        x = _LEFT + (value - low) * step
        if value in counts:
            top = _py(y, counts[value])
            parts.append(
                f'<rect class="tuned" x="{x + step * 0.08:.1f}" y="{top}" rx="1" '
                f'width="{step * 0.84:.1f}" height="{max(1.0, _HEIGHT - _BOTTOM - top):.1f}">'
                f"<title>{value}: {format_count(counts[value])}</title></rect>"
            )
        if (value - low) % every == 0:
            parts.append(_text(x + step / 2, _HEIGHT - _BOTTOM + 18, str(value)))
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 8, name, "end"))
    return "".join([*parts, _base_line(), "</svg>"])


def bars(rows: Sequence[tuple[str, float, str]], name: str, kind: str = "tuned") -> str:
    """Horizontal bars from zero: rows of (name, value, text behind the bar)."""
    largest = max((value for _, value, _ in rows), default=0.0)
    if largest <= 0:
        return ""
    left, room = 210, _WIDTH - 210 - 190
    parts = [_open_tag(_ROW * len(rows), name)]
    for index, (row, value, text) in enumerate(rows):
        middle = index * _ROW + _ROW / 2
        width = max(1.0, value / largest * room)
        parts += [
            _text(left - 10, middle + 4, row, "end"),
            f'<rect class="{escape(kind)}" x="{left}" y="{middle - 7:g}" rx="2" '
            f'width="{width:.1f}" height="14"/>',
            _text(left + width + 8, middle + 4, text, "start", "value"),
        ]
    return "".join([*parts, "</svg>"])


def ranges(rows: Sequence[tuple[float, float, str]], unit: str, tick: Format, name: str) -> str:
    """Vertical lines from a low to a high value, one beside another: (low, high, title)."""
    if not rows:
        return ""
    y = value_scale(min(low for low, _, _ in rows), max(high for _, high, _ in rows))
    step = (_WIDTH - _LEFT - _RIGHT) / len(rows)
    width = max(0.6, min(9.0, step * 0.6))
    parts = [_open_tag(_HEIGHT, name), *_y_axis(y, tick, unit)]
    for index, (low, high, title) in enumerate(rows):
        x = _LEFT + (index + 0.5) * step
        bottom, top = _py(y, low), _py(y, high)
        parts.append(
            f'<g><title>{escape(title)}</title><rect class="untuned" x="{x - width / 2:.1f}" '
            f'y="{top}" width="{width:.1f}" height="{max(1.0, bottom - top):.1f}"/>'
            f'<rect class="tuned" x="{x - width / 2:.1f}" y="{bottom - 1.5:.1f}" '
            f'width="{width:.1f}" height="3"/></g>'
        )
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 8, name, "end"))
    return "".join([*parts, _base_line(), "</svg>"])


def scatter(
    points: Sequence[Point],
    x_axis: tuple[str, Format],
    y_axis: tuple[str, Format],
    limit: tuple[float, str] | None = None,
    lines: Sequence[PlotLine] = (),
) -> str:
    """Marks over two axes, each with its name and how its ticks are written.

    `limit` is a line across at a value of y, with its text; `lines` may go any way.
    """
    if not points:
        return ""
    drawn = [point for line in lines for point in line.points]
    widths = [point.x for point in points] + [x for x, _ in drawn]
    heights = [point.y for point in points] + [y for _, y in drawn]
    heights += [limit[0]] if limit else []
    x = value_scale(min(widths), max(widths))
    y = value_scale(min(heights), max(heights))
    name, tick_text = y_axis
    parts = [_open_tag(_HEIGHT, f"{name} over {x_axis[0]}"), *_y_axis(y, tick_text, name)]
    for tick in x.ticks:
        at = round(_LEFT + x(tick) * (_WIDTH - _LEFT - _RIGHT), 1)
        parts.append(f'<path class="rule" d="M{at} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(_text(at, _HEIGHT - _BOTTOM + 18, x_axis[1](tick)))
    if limit:
        at = _py(y, limit[0])
        parts.append(f'<path class="target" d="M{_LEFT} {at}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_WIDTH - _RIGHT, at - 6, limit[1], "end"))
    parts += _lines(lines, x, y)
    for point in points:
        at = round(_LEFT + x(point.x) * (_WIDTH - _LEFT - _RIGHT), 1)
        parts.append(
            f'<circle class="point {escape(point.kind)}" cx="{at}" cy="{_py(y, point.y)}" r="4">'
            f"<title>{escape(point.title)}</title></circle>"
        )
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 8, x_axis[0], "end"))
    return "".join([*parts, _base_line(), "</svg>"])


def _lines(lines: Sequence[PlotLine], x: Scale, y: Scale) -> list[str]:
    """Their texts are left out where they would lie over each other."""
    parts: list[str] = []
    written: list[float] = []
    for line in lines:
        places = [
            (round(_LEFT + x(a) * (_WIDTH - _LEFT - _RIGHT), 1), _py(y, b)) for a, b in line.points
        ]
        path = "L".join(f"{a} {b}" for a, b in places)
        parts.append(f'<path class="roof" d="M{path}"><title>{escape(line.text)}</title></path>')
        left, height = places[0]
        is_rising = places[-1][1] < height
        if all(abs(height - other) >= _TEXT_HEIGHT for other in written):
            written.append(height)
            below = height + 11 if is_rising else height - 6
            parts.append(_text(left + (10 if is_rising else 4), below, line.text, "start"))
    return parts


def format_tick(value: float) -> str:
    """A number beside an axis: 500, 20 k, 1.5 M."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size * 0.9999:
            return f"{value / size:g}{unit}"
    return significant(value, 1) if value < 1 else f"{value:g}"


def _open_tag(height: float, label: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(label)}">'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "unit") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _py(scale: Scale, value: float) -> float:
    return round(_HEIGHT - _BOTTOM - scale(value) * (_HEIGHT - _TOP - _BOTTOM), 1)


def _base_line() -> str:
    return f'<path class="axis" d="M{_LEFT} {_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>'


def _y_axis(scale: Scale, tick: Format, unit: str) -> list[str]:
    parts = [_text(_LEFT - 8, _TOP - 14, unit, "end")]
    for value in scale.ticks:
        y = _py(scale, value)
        parts.append(f'<path class="rule" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 8, y + 4, tick(value), "end"))
    return parts
