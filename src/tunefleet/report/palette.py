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
#: What stands in a bar that has no room for the name of its kind: stages, then steps.
LETTERS = {
    "select": "S", "build": "B", "profile": "P", "update": "U",
    "split": "spl", "import": "imp", "check": "chk", "baseline": "src",
    "build finalists": "fin", "select winners": "win", "compile": "cmp", "verify": "ver",
    "publish": "pub", "measure": "mea",
}  # fmt: skip
#: The groups of a single job: its kinds of stages, and its steps.
_KINDS = ("select", "build", "profile", "update", "steps")
_OF_KINDS = (*_COLOURS[:4], "#9a9a9a")


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of jobs, or of kinds of stages where there is one job. With many jobs, a colour is
    that of a group of them in the order in which they started."""

    group_of: Mapping[str, int]
    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    by_kind: bool = False

    def group(self, bar: Bar) -> int:
        if not self.by_kind:
            return self.group_of[bar.job]
        return self.group_of.get(bar.stage if bar.task else "", len(_KINDS) - 1)

    def of(self, bar: Bar) -> Colour:
        colour = self.colours[self.group(bar)]
        return colour if self.by_kind else paler(colour, bar.stage)


def palette_of(jobs: Sequence[str]) -> Palette:
    """A colour for each job, or for each of a few groups of neighbours; of one job, for each kind
    of its stages."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    if len(jobs) == 1:
        kinds = {kind: index for index, kind in enumerate(_KINDS)}
        return Palette(kinds, _KINDS, tuple(to_rgb(c) for c in _OF_KINDS), by_kind=True)
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


def paler(colour: Colour, stage: str) -> Colour:
    """The shade of a kind of stage in the colour of a job."""
    white = PALER.get(stage, 0.0)
    red, green, blue = colour
    return red + white * (1 - red), green + white * (1 - green), blue + white * (1 - blue)


def letter(stage: str) -> str:
    """What stands for a kind of stage or step where its name has no room."""
    return LETTERS.get(stage) or short(stage, 18)[:1].upper()


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
