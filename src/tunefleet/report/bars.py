"""Horizontal bars with their names and values, as HTML: their labels wrap and keep their size on a
narrow page, which those of a scaled drawing do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

#: A bar of lesser interest is cut where it would be this many times as long as all others.
_CUT_BEYOND = 2.5
#: How far an interval may stretch the axis beyond its median.
_MOST_STRETCH = 1.5


@dataclass(frozen=True, slots=True)
class PageBar:
    """`kind` is its class in the style sheet, `text` stands behind it. A bar that is not `main` may
    be cut; `low` and `high` are its interval, where it has one."""

    name: str
    kind: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    main: bool = True


def bars(rows: Sequence[PageBar]) -> str:
    """Bars from zero on one scale, on which the main ones can be compared: a much longer one is
    cut, and says so."""
    end = _axis_end(rows)
    if end <= 0:
        return ""
    return f'<div class="bars">{"".join(_row(row, end) for row in rows)}</div>'


def _axis_end(rows: Sequence[PageBar]) -> float:
    main = [row for row in rows if row.main] or rows
    end = max((min(row.high or 0.0, row.value * _MOST_STRETCH) for row in main), default=0.0)
    end = max([end, *(row.value for row in main)])
    return max([end, *(row.value for row in rows if row.value <= end * _CUT_BEYOND)])


def _row(row: PageBar, end: float) -> str:
    is_cut = row.value > end
    drawn = f'<span class="bar {escape(row.kind)}" style="width:{_percent(row.value, end)}"></span>'
    if is_cut:
        drawn += '<span class="cut" title="cut: longer than this scale"></span>'
    elif row.low is not None and row.high is not None:
        left, right = min(row.low, end), min(row.high, end)
        reach = "whisker" if row.high <= end else "whisker open"
        where = f"left:{_percent(left, end)};width:{_percent(right - left, end)}"
        drawn += f'<span class="{reach}" style="{where}"></span>'
    text = f"{row.text}, bar cut" if is_cut else row.text
    return (
        f'<div><span class="name">{escape(row.name)}</span><span class="track">{drawn}</span>'
        f'<span class="value">{escape(text)}</span></div>'
    )


def _percent(value: float, end: float) -> str:
    return f"{min(1.0, value / end) * 100:.2f}%"
