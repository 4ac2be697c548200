"""Finds out what the sampling instructions of a design space can decide.

Tiles and categories are in the instructions. Where a block may be computed is not: TVM works it
out from the loops at that point of a replay. So a few random programs are replayed and asked.
"""

from __future__ import annotations

import contextlib
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

#: Random programs whose loops are looked at; of how many all valid locations are asked for, which
#: takes most of the time; and draws of tiles to choose the programs' from.
_PROBES = 4
_ASKED = 2
_DRAWS = 64

#: TVM's number for an iterator of a reduction.
_REDUCTION = 2


@dataclass(frozen=True, slots=True)
class _Nest:
    """What a probe saw at a sampling of a location: the valid ones, ascending, if it asked, and
    the loops of the block's consumer: their extents, and whether they are of its reduction.
    """

    valid: tuple[int, ...] | None
    extents: tuple[int, ...]
    reduces: tuple[bool, ...]


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
    probes = _probes(module, open_trace, sketch)
    for i, choice in enumerate(choices):
        if isinstance(choice, Location):
            choices[i] = _location(sketch, i, probes)
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
    """One random program of a sketch: its decisions and nests, both by instruction."""

    def __init__(
        self, module: Any, open_trace: Any, decisions: Mapping[int, Any], seed: int, asks: bool
    ) -> None:
        self._asks = asks
        self._schedule = tvm.s_tir.Schedule(module, seed=seed, error_render_level="none")
        self.nests: dict[int, _Nest] = {}
        instructions = open_trace.insts
        trace = tvm.s_tir.schedule.Trace(
            instructions, {instructions[i]: decision for i, decision in decisions.items()}
        )
        trace.apply_to_schedule(self._schedule, True, self._look)
        _, self.decisions = _plain_trace(self._schedule.trace)
        del self._schedule

    def long_loops(self) -> set[int]:
        """Indices at which a nest of the program has a loop of more than one step."""
        return {
            i for nest in self.nests.values() for i, extent in enumerate(nest.extents) if extent > 1
        }

    def _look(self, instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
        if str(instruction.kind.name) == "SampleComputeLocation":
            position = len(self._schedule.trace.insts)
            # On a copy: looking adds instructions to the trace.
            copy = self._schedule.copy()
            valid = _valid_locations(copy, inputs[0]) if self._asks else None
            self.nests[position] = _Nest(valid, *_consumer_loops(copy, inputs[0]))
        return decision


def _probes(module: Any, open_trace: Any, sketch: Sketch) -> list[_Probe]:
    """Tiles and categories are drawn here: TVM's first numbers hardly depend on its seed.

    Of several draws the one that tells the parts of the tiles apart best: two that are equal in
    every probe could be taken for one another.
    """
    located = {
        position
        for choice, position in zip(sketch.choices, sketch.positions, strict=True)
        if isinstance(choice, Location)
    }
    rng = np.random.default_rng(_PROBES)
    draws = [sketch.sample(_PROBES, rng) for _ in range(_DRAWS)]
    told = [np.unique(np.hstack(sketch.values(draw)), axis=1).shape[1] for draw in draws]
    found: list[_Probe] = []
    for picks in draws[int(np.argmax(told))]:
        decisions = {i: d for i, d in sketch.decisions(picks).items() if i not in located}
        seed = int(rng.integers(2**30, 2**31 - 1))
        with contextlib.suppress(Exception):  # one that TVM rejects has nothing to tell
            asks = len(found) < _ASKED
            found.append(_Probe(module, open_trace, decisions, seed, asks))
    return found


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


def _consumer_loops(schedule: Any, block: Any) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Extents of the loops around the only consumer of `block`, and which are its reduction's;
    none if there are more consumers.
    """
    consumers = schedule.get_consumers(block)
    loops = [schedule.get(loop) for loop in schedule.get_loops(consumers[0])] if consumers else []
    if len(consumers) != 1 or not loops or not isinstance(loops[-1].body, tvm.s_tir.SBlockRealize):
        return (), ()
    realize = loops[-1].body
    reducing = {
        variable
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if int(iterator.iter_type) == _REDUCTION
        for variable in tvm.tirx.analysis.undefined_vars(value)
    }
    return (
        tuple(int(loop.extent) for loop in loops),
        tuple(loop.loop_var in reducing for loop in loops),
    )


def _location(sketch: Sketch, index: int, probes: Sequence[_Probe]) -> Location:
    """TVM's rule for the loops that the probes saw, where all of them keep it; otherwise every
    loop that they saw to have more than one step, here or, since blocks move, anywhere.
    """
    nests = [probe.nests[sketch.positions[index]] for probe in probes]
    seen = Location.anywhere(
        [
            -1,
            *(location for nest in nests for location in nest.valid or ()),
            *(location for probe in probes for location in probe.long_loops()),
        ]
    )
    kinds = {nest.reduces for nest in nests}
    if len(kinds) != 1 or () in kinds:
        return seen  # several consumers, or one that other locations move
    rule = _by_rule(sketch, probes, nests, inline=bool(seen.options[0, 0] == -2))
    if rule is None:
        return seen
    kept = all(
        _expected(rule, sketch, probe.decisions) == nest.valid
        for nest, probe in zip(nests, probes, strict=True)
        if nest.valid is not None
    )
    return rule if kept else seen


def _by_rule(
    sketch: Sketch, probes: Sequence[_Probe], nests: Sequence[_Nest], inline: bool
) -> Location | None:
    """Inlined, at the root, and at each loop up to the last one that is not of the reduction.

    A loop belongs to the part of a tile whose factor is its extent in every probe. None when
    there is a loop whose extent is neither that nor always the same.
    """
    reduces = nests[0].reduces
    last = max((i for i, inside in enumerate(reduces) if not inside), default=-1)
    factors = {
        (choice, part): [probe.decisions[position][part] for probe in probes]
        for choice, position in enumerate(sketch.positions)
        if isinstance(sketch.choices[choice], Tile)
        for part in range(sketch.choices[choice].options.shape[1])
    }
    places = [(-2, -1, 0, False)] * inline + [(-1, -1, 0, False)]
    for i in range(last + 1):
        extents = [nest.extents[i] for nest in nests]
        found = next((key for key, values in factors.items() if values == extents), None)
        if found is not None:
            places.append((i, *found, reduces[i]))
        elif len(set(extents)) > 1:
            return None
        elif extents[0] > 1:
            places.append((i, -1, 0, reduces[i]))
    options, tile, part, inside = zip(*places, strict=True)
    return Location(
        np.array(options, dtype=np.int64)[:, None],
        np.array(tile, dtype=np.int64),
        np.array(part, dtype=np.int64),
        np.array(inside, dtype=bool),
    )


def _expected(location: Location, sketch: Sketch, decisions: Mapping[int, Any]) -> tuple[int, ...]:
    factors = [np.atleast_2d(decisions[position]) for position in sketch.positions]
    valid = location.valid(factors)[0]
    return tuple(int(o) for o in location.options[valid, 0])
