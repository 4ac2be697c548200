"""The drawings of the page: static SVG whose colours come from the style sheet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from tunefleet.core.result import CurvePoint
from tunefleet.report.scales import Scale, tick_time, time_scale, value_scale
from tunefleet.report.units import format_count, format_latency, format_seconds, significant

_WIDTH, _HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 42, 46
_TOOLTIPS = 150

#: A point of the curve with its latency in milliseconds.
Known = tuple[CurvePoint, float]


def tuning_curve(points: Sequence[CurvePoint], target_ms: float | None = None) -> str:
    """Estimated latency of the network over wall time as a step line; "" without a point.

    `points` are in order of time.
    """
    known = [(p, p.latency_ms) for p in points if p.latency_ms]
    if not known:
        return ""
    values = [latency_ms for _, latency_ms in known]
    low, high = min(values), max(values)
    if target_ms is not None:
        low, high = min(low, target_ms), max(high, target_ms)
    x = time_scale(points[-1].wall_s)
    y = value_scale(low, high)
    parts = [
        _open_tag("Estimated latency of the network over the time of tuning"),
        *_y_axis(y),
        *_x_axis(x, points),
        _waiting(x, known[0][0].wall_s),
        *([] if target_ms is None else _target(y, target_ms)),
        f'<path class="line" d="{_steps(x, y, known)}"/>',
        *(_dot(x, y, p) for p in _improvements(known)),
        "</svg>",
    ]
    return "".join(parts)


def _open_tag(label: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">'
    )


def _px(scale: Scale, value: float) -> float:
    return round(_LEFT + scale(value) * (_WIDTH - _LEFT - _RIGHT), 1)


def _py(scale: Scale, value: float) -> float:
    return round(_HEIGHT - _BOTTOM - scale(value) * (_HEIGHT - _TOP - _BOTTOM), 1)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _y_axis(scale: Scale) -> list[str]:
    parts = [_text(_LEFT - 8, _TOP - 22, "ms", "unit", "end")]
    for tick in scale.ticks:
        y = _py(scale, tick)
        parts.append(f'<path class="rule" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{tick:.6g}", anchor="end"))
    return parts


def _x_axis(scale: Scale, points: Sequence[CurvePoint]) -> list[str]:
    """Wall time below, trials at the same moments above."""
    bottom = _HEIGHT - _BOTTOM
    times = [point.wall_s for point in points]
    parts = [
        f'<path class="axis" d="M{_LEFT} {bottom}H{_WIDTH - _RIGHT}"/>',
        _text(_WIDTH - _RIGHT, _HEIGHT - 8, "wall time of the stages", "unit", "end"),
        _text(_WIDTH - _RIGHT, _TOP - 30, "trials", "unit", "end"),
    ]
    for tick in scale.ticks:
        x = _px(scale, tick)
        parts.append(f'<path class="axis" d="M{x} {bottom}v4"/>')
        parts.append(_text(x, bottom + 18, tick_time(tick, scale.high)))
        after = bisect_right(times, tick)
        trials = points[after - 1].trials if after else 0
        parts.append(_text(x, _TOP - 12, format_count(trials)))
    return parts


def _waiting(scale: Scale, until_s: float) -> str:
    """The time in which not every task had a measurement yet."""
    start, end = _px(scale, 0.0), _px(scale, until_s)
    height = _HEIGHT - _TOP - _BOTTOM
    shape = f'<rect class="wait" x="{start}" y="{_TOP}" width="{end - start}" height="{height}"/>'
    if end - start < 150:
        return shape
    return shape + _text((start + end) / 2, _TOP + height / 2, "first round of each task", "unit")


def _target(scale: Scale, target_ms: float) -> list[str]:
    y = _py(scale, target_ms)
    return [
        f'<path class="target" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>',
        _text(_WIDTH - _RIGHT, y - 6, f"target {significant(target_ms)} ms", "unit", "end"),
    ]


def _steps(x: Scale, y: Scale, points: Sequence[Known]) -> str:
    path = ""
    for point, latency_ms in points:
        px, py = _px(x, point.wall_s), _py(y, latency_ms)
        path += f"H{px}V{py}" if path else f"M{px} {py}"
    return path


def _improvements(points: Sequence[Known]) -> list[Known]:
    """The first point, the last, and those in between where the latency fell, at most so many."""
    fell = [after for before, after in pairwise(points) if after[1] < before[1]]
    every = max(1, -(-len(fell) // _TOOLTIPS))
    chosen = [points[0], *fell[every - 1 :: every]]
    return chosen if chosen[-1] is points[-1] else [*chosen, points[-1]]


def _dot(x: Scale, y: Scale, known: Known) -> str:
    point, latency_ms = known
    text = (
        f"{format_latency(latency_ms / 1e3)} after "
        f"{format_count(point.trials)} trials, {format_seconds(point.wall_s)}"
    )
    cx, cy = _px(x, point.wall_s), _py(y, latency_ms)
    return f'<circle class="dot" cx="{cx}" cy="{cy}" r="5"><title>{escape(text)}</title></circle>'
