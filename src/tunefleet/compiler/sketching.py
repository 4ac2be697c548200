"""Finds out what the sampling instructions of a design space can decide.

Tiles and categories are in the instructions. Where a block may be computed is not: TVM works it
out from the loops at that point of a replay. So a few random programs are replayed and asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tunefleet.compiler.choices import Category, Choice, Location, Tile
from tunefleet.compiler.programs import plain
from tunefleet.compiler.sketch import Sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.errors import InternalError

tvm = load_tvm()

#: Random programs whose compute locations are compared with what is expected of them.
_PROBES = 6

#: TVM's number for an iterator of a reduction.
_REDUCTION = 2


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop of a consumer: instruction and part of the tile that it runs over, if it is one (-1:
    it is none), and its extent if it is none."""

    tile: int
    part: int
    extent: int
    reduces: bool


@dataclass(frozen=True, slots=True)
class _Nest:
    """What one probe saw at a sampling of a location: valid ones, and the consumer's loops."""

    valid: tuple[int, ...]
    loops: tuple[_Loop, ...]


def open_sketch(module: Any, open_trace: Any) -> Sketch:
    """The sketch of a design space of `module`, from its trace.

    Raises InternalError for a sampling instruction that CPU schedules do not have.
    """
    instructions, known = _plain_trace(open_trace)
    choices: list[Choice] = []
    positions = []
    for i, (kind, _, attributes, _) in enumerate(instructions):
        if kind.startswith("Sample"):
            choices.append(_choice(kind, attributes, known[i]))
            positions.append(i)
    sketch = Sketch(tuple(instructions), tuple(choices), tuple(positions))
    if not any(isinstance(choice, Location) for choice in choices):
        return sketch
    probes = [_Probe(module, open_trace, seed) for seed in range(1, _PROBES + 1)]
    for i, position in enumerate(positions):
        if isinstance(choices[i], Location):
            choices[i] = _location(sketch, i, [probe.nests[position] for probe in probes], probes)
    return replace(sketch, choices=tuple(choices))


def _choice(kind: str, attributes: Any, decision: Any) -> Choice:
    if kind == "SamplePerfectTile":
        parts, innermost = attributes
        return Tile.of(math.prod(decision), int(parts), int(innermost))
    if kind == "SampleCategorical":
        values, weights = (np.array(a) for a in attributes)
        return Category(values.astype(np.int64)[:, None], weights / weights.sum())
    if kind == "SampleComputeLocation":
        return Location.anywhere([decision])
    raise InternalError(f"{kind} is not known as a choice of a sketch")


def _plain_trace(trace: Any) -> tuple[list[Any], dict[int, Any]]:
    """Instructions, and decisions by instruction."""
    instructions, decisions = plain(trace.as_json())
    return instructions, {int(i): decision for i, decision in decisions}


class _Probe:
    """One random program of a design space: its decisions, and its nests by instruction."""

    def __init__(self, module: Any, open_trace: Any, seed: int) -> None:
        self._schedule = tvm.s_tir.Schedule(module, seed=seed, error_render_level="none")
        self.nests: dict[int, _Nest] = {}
        trace = tvm.s_tir.schedule.Trace(open_trace.insts, {})
        trace.apply_to_schedule(self._schedule, True, self._look)
        _, self.decisions = _plain_trace(self._schedule.trace)
        del self._schedule

    def _look(self, instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
        if str(instruction.kind.name) == "SampleComputeLocation":
            # On a copy: asking for a location adds an instruction to the trace.
            copy = self._schedule.copy()
            position = len(self._schedule.trace.insts)
            loops = _consumer_loops(copy, inputs[0])
            self.nests[position] = _Nest(_valid_locations(copy, inputs[0]), loops)
        return decision


def _valid_locations(schedule: Any, block: Any) -> tuple[int, ...]:
    """All locations that TVM would take here, ascending.

    It takes the next lower one for any that it would not: so ask downwards from the highest.
    """
    found: list[int] = []
    wanted = 2**20
    while True:
        schedule.sample_compute_location(block, decision=wanted)
        trace = schedule.trace
        taken = int(trace.decisions[trace.insts[-1]])
        if found and taken >= found[-1]:
            return tuple(reversed(found))
        found.append(taken)
        wanted = taken - 1


def _consumer_loops(schedule: Any, block: Any) -> tuple[_Loop, ...]:
    """The loops around the only consumer of `block`; none if there are more consumers."""
    consumers = schedule.get_consumers(block)
    if len(consumers) != 1:
        return ()
    loops = [schedule.get(loop) for loop in schedule.get_loops(consumers[0])]
    if not loops or not isinstance(loops[-1].body, tvm.s_tir.SBlockRealize):
        return ()
    realize = loops[-1].body
    reducing = [
        value
        for variable, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if int(variable.iter_type) == _REDUCTION
    ]
    used = {v for value in reducing for v in tvm.tirx.analysis.undefined_vars(value)}
    tiles = _tiled_loops(schedule)
    found = []
    for loop in loops:
        tile, part = tiles.get(loop.loop_var, (-1, 0))
        extent = int(loop.extent) if tile < 0 else 0
        found.append(_Loop(tile, part, extent, reduces=loop.loop_var in used))
    return tuple(found)


def _tiled_loops(schedule: Any) -> dict[Any, tuple[int, int]]:
    """Loop variables that a sampled tile made: instruction of the sampling, and part."""
    sampled = {}
    found = {}
    for i, instruction in enumerate(schedule.trace.insts):
        kind = str(instruction.kind.name)
        if kind == "SamplePerfectTile":
            sampled.update({output: i for output in instruction.outputs})
        elif kind == "Split" and instruction.inputs[1] in sampled:
            tile = sampled[instruction.inputs[1]]
            for part, loop in enumerate(instruction.outputs):
                found[_variable(schedule, loop)] = (tile, part)
    return found


def _variable(schedule: Any, loop: Any) -> Any:
    """The variable of a loop; None when the loop is gone by now."""
    try:
        return schedule.get(loop).loop_var
    except Exception:  # fused or moved since: TVM raises errors of several kinds
        return None


def _location(
    sketch: Sketch, index: int, nests: Sequence[_Nest], probes: Sequence[_Probe]
) -> Location:
    """The rule of TVM's for the loops that the probes saw, where it holds for all of them;
    otherwise whatever they saw, valid or not."""
    seen = Location.anywhere([location for nest in nests for location in nest.valid])
    loops = nests[0].loops
    if any(nest.loops != loops for nest in nests):
        return seen
    expected = _by_rule(sketch, loops, inline=bool(seen.options[0, 0] == -2))
    agreed = all(
        _expected(expected, sketch, probe.decisions) == nest.valid
        for nest, probe in zip(nests, probes, strict=True)
    )
    return expected if agreed else seen


def _by_rule(sketch: Sketch, loops: Sequence[_Loop], inline: bool) -> Location:
    """Inlined, at the root, and at each loop up to the last one that is not of the reduction."""
    last = max((i for i, loop in enumerate(loops) if not loop.reduces), default=-1)
    places = [(i, loop) for i, loop in enumerate(loops[: last + 1]) if loop.extent != 1]
    outside = [-2, -1] if inline else [-1]
    pad = len(outside)
    return Location(
        np.array([*outside, *(i for i, _ in places)], dtype=np.int64)[:, None],
        np.array([-1] * pad + [_choice_at(sketch, loop.tile) for _, loop in places]),
        np.array([0] * pad + [loop.part for _, loop in places]),
        np.array([False] * pad + [loop.reduces for _, loop in places]),
    )


def _choice_at(sketch: Sketch, instruction: int) -> int:
    return sketch.positions.index(instruction) if instruction >= 0 else -1


def _expected(location: Location, sketch: Sketch, decisions: Mapping[int, Any]) -> tuple[int, ...]:
    factors = [np.atleast_2d(decisions[position]) for position in sketch.positions]
    valid = location.valid(factors)[0]
    return tuple(int(o) for o in location.options[valid, 0])
