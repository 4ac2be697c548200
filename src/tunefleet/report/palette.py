"""Colours of jobs and shades of stages, and what of their names fits beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunefleet.report.timeline import Bar

Colour = tuple[float, float, float]

#: Okabe and Ito's colours, which the colour-blind tell apart; black is left to the text.
_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#8a8a8a",
)  # fmt: skip
#: How much white is mixed into the colour of a job, by kind of stage.
PALER = {"select": 0.38, "update": 0.68}


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of jobs; with many jobs, of groups of them in the order in which they started."""

    group_of: Mapping[str, int]
    names: tuple[str, ...]
    colours: tuple[Colour, ...]

    def of(self, bar: Bar) -> Colour:
        paler = PALER.get(bar.stage, 0.0)
        red, green, blue = self.colours[self.group_of[bar.job]]
        return red + paler * (1 - red), green + paler * (1 - green), blue + paler * (1 - blue)


def palette_of(jobs: Sequence[str]) -> Palette:
    """A colour for each job, or for each of a few groups of neighbours."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    count = len(_COLOURS)
    if len(jobs) <= count:
        group_of = {job: index for index, job in enumerate(jobs)}
        colours = tuple(to_rgb(c) for c in _COLOURS)
    else:
        group_of = {job: index * count // len(jobs) for index, job in enumerate(jobs)}
        shades = colormaps["viridis"]
        colours = tuple(to_rgb(shades(0.96 * i / (count - 1))) for i in range(count))
    members: dict[int, list[str]] = {}
    for job, group in group_of.items():
        members.setdefault(group, []).append(job)
    return Palette(group_of, tuple(_group_name(m) for m in members.values()), colours)


def _group_name(jobs: Sequence[str]) -> str:
    first = short(jobs[0], 18)
    return first if len(jobs) == 1 else f"{first} to {short(jobs[-1], 18)}"


def ink(colour: Colour) -> str:
    """The colour of text on this colour."""
    red, green, blue = colour
    return "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "white"


def short(text: str, length: int) -> str:
    """On one line, free of what XML cannot hold, cut in the middle when too long."""
    clean = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()
    half = (length - 1) // 2
    return clean if len(clean) <= length else f"{clean[:half]}…{clean[-half:]}"
