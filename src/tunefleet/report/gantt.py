"""A timeline as a drawing: one row per resource, a colour per job and a shade per kind of stage, or
a colour per kind where there is one job; the legend explains both, and the letters in bars."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tunefleet.report.palette import LETTERS, Palette, ink, letter, paler, palette_of, short
from tunefleet.report.scales import tick_time, time_scale
from tunefleet.report.timeline import Bar, Timeline, merged, shares, tracks
from tunefleet.report.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Inches; a pixel is a hundredth of one on the screen.
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _LEGEND_ROW = 12.0, 1.35, 0.75, 0.55, 0.42, 0.24
_PIXELS_PER_INCH = 100
#: Rows get less height the more there are.
_TALLEST_ROW, _LOWEST_ROW, _ROWS_HEIGHT = 0.62, 0.06, 7.5
#: A row whose bars are narrower than this on average shows shares of time instead.
_NARROW_PX = 4.0
_BUCKET_PX = 5.0
_FONT, _SMALL = 9.0, 7.5
_LETTER_PX = 0.62 * _SMALL * _PIXELS_PER_INCH / 72

_EMPTY, _RULE, _SOFT, _AGAIN = "#ededeb", "#d5d8d6", "#5d6870", "#c01010"


def gantt_png(timeline: Timeline, title: str, scale: float = 1.5) -> bytes:
    """The drawing as PNG, 1200 pixels wide times `scale`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with _drawn(timeline, title) as figure:
        out = io.BytesIO()
        figure.set_dpi(_PIXELS_PER_INCH * scale)
        FigureCanvasAgg(figure).print_png(out, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return out.getvalue()


def gantt_svg(timeline: Timeline, title: str) -> str:
    """The drawing as an SVG document; text stays text."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with _drawn(timeline, title) as figure:
        out = io.BytesIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(out, metadata=nothing)  # type: ignore[no-untyped-call]
    return out.getvalue().decode()


@contextmanager
def _drawn(timeline: Timeline, title: str) -> Iterator[Figure]:
    """The same drawing gives the same bytes; letters that the font lacks are drawn as boxes."""
    from matplotlib import rc_context

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "tunefleet",
        "font.family": "DejaVu Sans",
        "font.size": _FONT,
        "hatch.linewidth": 0.6,
    }
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield _figure(timeline, title)


def _figure(timeline: Timeline, title: str) -> Figure:
    from matplotlib.figure import Figure

    names = timeline.rows()
    end_s = timeline.end_s
    across = _WIDTH - _LEFT - _RIGHT
    px_per_s = across * _PIXELS_PER_INCH / max(end_s, 1e-9)
    height = max(_LOWEST_ROW, min(_TALLEST_ROW, _ROWS_HEIGHT / max(1, len(names))))
    rows = [
        _Row(index, bars, timeline.slots.get(name, 1), px_per_s, height)
        for index, (name, bars) in enumerate(names.items())
    ]
    full = [row for row in rows if row.is_full(end_s)]
    palette = palette_of(list(timeline.bars_of_jobs()))
    shown = [bar for row in rows if row not in full for bar in row.bars]
    legend = _legend_handles(timeline, palette, {bar.stage for bar in shown})
    body, below = height * max(1, len(rows)), _BOTTOM + _LEGEND_ROW * _legend_rows(legend)
    top = _TOP if title or full else _TOP / 2
    whole = top + body + below
    figure = Figure(figsize=(_WIDTH, whole), dpi=_PIXELS_PER_INCH, facecolor="white")
    axes = figure.add_axes((_LEFT / _WIDTH, below / whole, across / _WIDTH, body / whole))
    figure.text(_LEFT / _WIDTH, 1 - 0.2 / whole, short(title, 90), fontsize=_FONT + 2.5,
                fontweight="bold", va="center", parse_math=False)  # fmt: skip
    if full:
        bucket = format_seconds(_BUCKET_PX / px_per_s)
        figure.text(1 - _RIGHT / _WIDTH, 1 - 0.2 / whole, f"heights: share of each {bucket}",
                    fontsize=_SMALL, color=_SOFT, ha="right", va="center")  # fmt: skip
    _axes(axes, timeline, list(names), height)
    for row in rows:
        axes.barh(row.index, end_s, height=0.84, color=_EMPTY, linewidth=0, zorder=0.4)
        if row in full:
            _shares(axes, row, palette, end_s)
        else:
            _draw(axes, row, palette)
    for gap in timeline.gaps:
        axes.barh(list(names).index(gap.resource_id), gap.end_s - gap.start_s, left=gap.start_s,
                  height=0.84, facecolor="white", edgecolor="#9aa0a3", hatch="/////",
                  linewidth=0.0)  # fmt: skip
    figure.legend(handles=legend, loc="lower left", ncols=_per_row(legend), frameon=False,
                  fontsize=_SMALL + 0.5, bbox_to_anchor=((_LEFT - 0.1) / _WIDTH, 0.0),
                  handlelength=1.1, handleheight=0.9, columnspacing=1.4)  # fmt: skip
    for text in figure.legends[0].get_texts():
        text.set_parse_math(False)
    return figure


def _axes(axes: Axes, timeline: Timeline, names: Sequence[str], height: float) -> None:
    end_s = max(timeline.end_s, 1e-3)
    axes.set_xlim(0, end_s)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    ticks = time_scale(end_s, count=9).ticks
    axes.set_xticks(ticks, [tick_time(t, end_s) for t in ticks], color=_SOFT)
    every = max(1, round(0.17 / height))
    shown = range(0, len(names), every)
    axes.set_yticks(list(shown), [short(names[i], 17) for i in shown], parse_math=False)
    axes.tick_params(length=0, pad=6)
    axes.grid(axis="x", color=_RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    used = timeline.utilisation()
    beside = axes.get_yaxis_transform()
    axes.text(1.008, -0.62, "in use", transform=beside, fontsize=_SMALL, color=_SOFT, va="bottom")
    for i in shown:
        axes.text(1.008, i, f"{used[names[i]]:.0%}", transform=beside, va="center")


@dataclass(frozen=True, slots=True)
class _Row:
    index: int
    bars: Sequence[Bar]
    slots: int
    px_per_s: float
    height: float

    def tracks(self) -> list[list[Bar]]:
        return [merged(track, 0.5 / self.px_per_s) for track in tracks(self.bars)]

    def is_full(self, end_s: float) -> bool:
        """Too many bars to see one."""
        longest = max((len(track) for track in self.tracks()), default=0)
        return longest * _NARROW_PX > end_s * self.px_per_s


def _draw(axes: Axes, row: _Row, palette: Palette) -> None:
    side_by_side = row.tracks()
    count = max(row.slots, len(side_by_side))
    for number, track in enumerate(side_by_side):
        bottom, height = row.index - 0.42 + 0.84 * number / count, 0.84 / count
        _bars(axes, track, bottom, height, palette, row)


def _bars(
    axes: Axes, track: Sequence[Bar], bottom: float, height: float, palette: Palette, row: _Row
) -> None:
    from matplotlib.collections import PolyCollection

    colours = [palette.of(bar) for bar in track]
    corners = [
        ((b.start_s, bottom), (b.start_s, bottom + height), (b.end_s, bottom + height),
         (b.end_s, bottom))
        for b in track
    ]  # fmt: skip
    widths = [(b.end_s - b.start_s) * row.px_per_s for b in track]
    edges = [0.7 if width > 5 else 0.0 for width in widths]
    axes.add_collection(
        PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=edges)
    )
    again = [c for c, b in zip(corners, track, strict=True) if b.attempt > 1]
    if again:
        axes.add_collection(
            PolyCollection(again, facecolors="none", edgecolors=_AGAIN, linewidths=1.3, zorder=1.5)
        )
    if height * row.height * _PIXELS_PER_INCH < 1.5 * _SMALL:
        return
    for bar, colour, width in zip(track, colours, widths, strict=True):
        text = _fitting(bar, width, palette)
        if text:
            middle = (bar.start_s + bar.end_s) / 2, bottom + height / 2
            axes.text(*middle, text, ha="center", va="center", fontsize=_SMALL, color=ink(colour),
                      parse_math=False)  # fmt: skip


def _fitting(bar: Bar, width_px: float, palette: Palette) -> str:
    """The longest of a few labels that fits."""
    room = (width_px - 4) / _LETTER_PX
    job, stage = short(bar.job, 40), short(bar.stage, 18)
    labels = [stage, letter(bar.stage)]
    if not palette.by_kind:
        labels.insert(0, f"{job} {stage}")
    return next((label for label in labels if len(label) <= room), "")


def _shares(axes: Axes, row: _Row, palette: Palette, end_s: float) -> None:
    """A row too full for bars: how much of each short time went to which jobs, from below."""
    import numpy as np
    from matplotlib.collections import PolyCollection

    buckets = int(end_s * row.px_per_s / _BUCKET_PX)
    layers = np.array(
        shares(row.bars, palette.group, len(palette.names), end_s, buckets, row.slots)
    )
    edges = np.repeat(np.linspace(0, end_s, buckets + 1), 2)[1:-1]
    low = np.full(2 * buckets, row.index + 0.42)
    for layer, colour in zip(layers, palette.colours, strict=False):
        high = low - 0.84 * np.repeat(layer, 2)
        outlines = [
            np.column_stack((np.concatenate((edges[run], edges[run][::-1])),
                             np.concatenate((low[run], high[run][::-1]))))
            for run in _runs(np.repeat(layer, 2) > 0)
        ]  # fmt: skip
        axes.add_collection(PolyCollection(outlines, facecolors=[colour], linewidths=0))
        low = high


def _runs(present: Any) -> Iterator[slice]:
    """Where an array of truths is true."""
    import numpy as np

    changes = np.flatnonzero(np.diff(np.concatenate(([0], present.astype(int), [0]))))
    for start, end in zip(changes[::2], changes[1::2], strict=True):
        yield slice(start, end)


def _legend_handles(timeline: Timeline, palette: Palette, stages: Set[str]) -> list[Any]:
    """`stages` are those of bars that can be seen one by one, which may have letters."""
    from matplotlib.patches import Patch

    of_jobs, of_stages = palette.colours, dict.fromkeys(stages, (0.35, 0.35, 0.35))
    if palette.by_kind:
        written = {palette.group(bar) for bar in timeline.bars if bar.stage in stages}
        used = {palette.group(bar) for bar in timeline.bars} - written
        handles = [
            Patch(facecolor=of_jobs[group], label=name)
            for group, name in enumerate(palette.names)
            if group in used
        ]
        of_stages = {bar.stage: palette.of(bar) for bar in timeline.bars if bar.stage in stages}
    else:
        handles = [
            Patch(facecolor=c, label=n) for c, n in zip(of_jobs, palette.names, strict=False)
        ]
        of_stages = {stage: paler(grey, stage) for stage, grey in of_stages.items()}
    known = [*LETTERS, *sorted(stages - LETTERS.keys())]
    for stage in (s for s in known if s in stages):
        label = f"{letter(stage)}  {short(stage, 18)}"
        handles.append(Patch(facecolor=of_stages[stage], label=label))
    if any(bar.attempt > 1 for bar in timeline.bars):
        handles.append(Patch(facecolor="white", edgecolor=_AGAIN, label="attempt after the first"))
    if timeline.gaps:
        handles.append(Patch(facecolor="white", edgecolor="#9aa0a3", hatch="/////",
                             label="unavailable"))  # fmt: skip
    return handles


def _per_row(handles: Sequence[Any]) -> int:
    longest = max((len(h.get_label()) for h in handles), default=1)
    return max(1, min(len(handles), int(155 / (longest + 5))))


def _legend_rows(handles: Sequence[Any]) -> int:
    return -(-len(handles) // _per_row(handles))
