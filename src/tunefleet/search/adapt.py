"""Schedule transfer: adapts the decisions of a similar task's trace to this task's shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunefleet.core.forms import DEPTHWISE_TILE, REGISTER_TILE
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

#: Constants of a sketch that depend on its shapes and target.
_OWN = frozenset({"meta_schedule.parallel", "meta_schedule.vectorize"})


@dataclass(frozen=True, slots=True)
class TransferSource:
    """A trace up to its postprocessing: plain instructions, and decisions by instruction index."""

    instructions: tuple[Any, ...]
    decisions: Mapping[int, Any]

    @classmethod
    def parse(cls, trace: str) -> TransferSource | None:
        """None if the text is not a trace in TVM's format, or a decision is missing."""
        try:
            parsed = json.loads(trace)
        except (ValueError, RecursionError):
            return None
        if not (isinstance(parsed, list) and len(parsed) == 2 and _are_lists(parsed)):
            return None
        instructions, decisions = parsed
        if not (all(map(_is_instruction, instructions)) and all(map(_is_decision, decisions))):
            return None
        kinds = [kind for kind, _, _, _ in instructions]
        end = kinds.index("EnterPostproc") if "EnterPostproc" in kinds else len(kinds)
        made = {i: decision for i, decision in decisions if i < end}
        complete = all(
            _fits(made.get(i), kind, attributes)
            for i, (kind, _, attributes, _) in enumerate(instructions[:end])
            if kind.startswith("Sample")
        )
        return cls(tuple(instructions[:end]), made) if complete else None


def _are_lists(values: Sequence[Any]) -> bool:
    return all(isinstance(value, list) for value in values)


def _is_instruction(value: Any) -> bool:
    """`[kind, inputs, attributes, outputs]`, the outputs by name."""
    if not (isinstance(value, list) and len(value) == 4 and _are_lists(value[1:])):
        return False
    kind, _, attributes, outputs = value
    if not (isinstance(kind, str) and all(isinstance(out, str) and out for out in outputs)):
        return False
    if kind == "Annotate":
        return bool(attributes) and isinstance(attributes[0], str)
    return bool(attributes) or kind not in ("SamplePerfectTile", "SampleCategorical")


def _is_decision(value: Any) -> bool:
    """`[index of an instruction, its decision]`."""
    return isinstance(value, list) and len(value) == 2 and type(value[0]) is int


def _fits(decision: Any, kind: str, attributes: Sequence[Any]) -> bool:
    """Whether a decision is an option of an instruction."""
    if kind == "SamplePerfectTile":
        factors = isinstance(decision, list) and all(type(f) is int and f > 0 for f in decision)
        return factors and attributes[0] == len(decision)
    if kind == "SampleCategorical":
        options = attributes[0] if isinstance(attributes[0], list) else []
        return type(decision) is int and 0 <= decision < len(options)
    return type(decision) is int


def adapted(source: TransferSource, sketch: Sketch) -> Ints:
    """Picks (2, choices) of a sketch with the source's structure (`build_of`).

    The first row keeps the source's inner tile factors, since vectors, registers and caches do not
    grow with the shape. The second also keeps the outermost factors, which are parallelised.
    """
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


def build_of(instructions: Sequence[Any]) -> list[Any]:
    """The structure shared by sketches of one kind: the instructions that shape loops, with loops
    by index instead of name, the parts of the tiles and the tiling structure.
    """
    loops: dict[str, int] = {}
    steps = []
    for kind, inputs, attributes, outputs in instructions:
        loops.update({name: len(loops) + i for i, name in enumerate(outputs) if name[0] == "l"})
        if kind in _NAMING or (kind == "Annotate" and attributes[0] in _OWN):
            continue
        if kind == "Annotate" and attributes[0] in (REGISTER_TILE, DEPTHWISE_TILE):
            steps.append((kind, inputs[1:], None, 0))
            continue
        shaping = [
            loops.get(i, i if i.startswith('"') else "") for i in inputs if isinstance(i, str)
        ]
        parts = attributes[0] if kind == "SamplePerfectTile" else None
        steps.append((kind, shaping, parts, len(outputs)))
    return steps
