"""Schedule transfer: adapts the decisions of a similar task's trace to this task's shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunefleet.search.choices import Category, Choice, Ints, Location, Tile
from tunefleet.search.sketch import Sketch

#: Instructions that only look up or inline blocks: traces may differ in them.
_NAMING = frozenset(
    {
        "ComputeInline",
        "GetConsumers",
        "GetProducers",
        "GetSBlock",
        "ReverseComputeInline",
        "Unannotate",
    }
)

#: Errors from reading a trace that TVM did not write, or that is truncated.
_STRANGE = (AttributeError, IndexError, KeyError, TypeError, ValueError)

#: Constants of a sketch that depend on its shapes and target.
_OWN = frozenset({"meta_schedule.parallel", "meta_schedule.vectorize"})


@dataclass(frozen=True, slots=True)
class TransferSource:
    """A trace up to its postprocessing: plain instructions, and decisions by instruction index."""

    instructions: tuple[Any, ...]
    decisions: Mapping[int, Any]

    @classmethod
    def parse(cls, trace: str) -> TransferSource | None:
        """None if the text is not a trace."""
        try:
            instructions, decisions = json.loads(trace)
            kinds = [kind for kind, _, _, _ in instructions]
            end = kinds.index("EnterPostproc") if "EnterPostproc" in kinds else len(kinds)
            made = {int(i): decision for i, decision in decisions if int(i) < end}
        except (ValueError, TypeError):
            return None
        return cls(tuple(instructions[:end]), made)


def adapted(source: TransferSource, sketch: Sketch) -> Ints | None:
    """Picks (2, choices) of a sketch with the source's structure (`build_of`); None if the source's
    decisions are not in TVM's format.

    The first row keeps the source's inner tile factors, since vectors, registers and caches do not
    grow with the shape. The second also keeps the outermost factors, which are parallelised.
    """
    try:
        sampled = [
            (instruction, source.decisions[i])
            for i, instruction in enumerate(source.instructions)
            if instruction[0].startswith("Sample")
        ]
        picks = [
            [
                _nearest(choice, instruction, decision, keep_outer)
                for choice, (instruction, decision) in zip(sketch.choices, sampled, strict=True)
            ]
            for keep_outer in (1.0, 16.0)
        ]
    except _STRANGE:
        return None
    return sketch.settled(np.array(picks, dtype=np.int64).reshape(2, len(sketch.choices)))


def _nearest(choice: Choice, instruction: Any, decision: Any, outermost: float) -> int:
    """The option closest to a source's decision; `outermost` is the weight of outermost parts."""
    options = choice.options
    match choice:
        case Tile():
            weights = 2.0 ** np.arange(options.shape[1])
            if len(weights) > 2:  # two parts are a reduction's, which is not parallel
                weights[0] = outermost
            distance = weights * (np.log2(options) - np.log2(np.maximum(decision, 1))) ** 2
            return int(distance.sum(axis=1).argmin())
        case Category():
            value = instruction[2][0][decision]
            return int(np.abs(options[:, 0] - value).argmin())
        case Location():
            return max(int(np.searchsorted(options[:, 0], decision, side="right")) - 1, 0)


def build_of(instructions: Sequence[Any]) -> list[Any] | None:
    """The structure shared by sketches of one kind: the instructions that shape loops, with loops
    by index instead of name, the parts of the tiles and the tiling structure. None if these are not
    instructions in TVM's format.
    """
    try:
        return _shaping(instructions)
    except _STRANGE:
        return None


def _shaping(instructions: Sequence[Any]) -> list[Any]:
    loops: dict[str, int] = {}
    steps = []
    for kind, inputs, attributes, outputs in instructions:
        loops.update({name: len(loops) + i for i, name in enumerate(outputs) if name[0] == "l"})
        if kind in _NAMING or (kind == "Annotate" and attributes[0] in _OWN):
            continue
        shaping = [
            loops.get(i, i if i.startswith('"') else "") for i in inputs if isinstance(i, str)
        ]
        parts = attributes[0] if kind == "SamplePerfectTile" else None
        steps.append((kind, shaping, parts, len(outputs)))
    return steps
