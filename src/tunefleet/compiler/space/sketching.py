"""Determines the options of the sampling instructions of a design space.

Instructions contain the options of tiles and categories, but not of compute locations: TVM derives
those from the loops during a replay. Therefore a few random programs are replayed as probes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import REDUCTION, plain
from tunefleet.core.ids import canonical_json, digest
from tunefleet.errors import InternalError, raise_mistake
from tunefleet.search.choices import Category, Choice, Location, Tile
from tunefleet.search.sketch import Sketch

tvm = load_tvm()

#: The number of probes; the number of probes for which all valid locations are queried, which takes
#: most of the time; and the number of drawn tiles to choose from.
_PROBES = 4
_ASKED = 2
_DRAWS = 16


@dataclass(frozen=True, slots=True)
class _Nest:
    """The observation of a probe at a location sampling: the valid locations, ascending, if
    queried, and the loops of the block's consumer: their extents, whether they are reduction loops,
    and their tile parts as (sampling instruction, part).
    """

    valid: tuple[int, ...] | None
    extents: tuple[int, ...]
    reduces: tuple[bool, ...]
    parts: tuple[tuple[int, int] | None, ...]


def generator_of(
    sketches: Callable[[Any], Sequence[Any]], postprocessors: Sequence[Any] = ()
) -> Any:
    """The space generator of a family whose schedules are made here, without MetaSchedule's rules:
    `sketches` gives those of an unscheduled task."""
    return tvm.s_tir.meta_schedule.space_generator.ScheduleFn(
        sketches, sch_rules=[], postprocs=list(postprocessors), mutator_probs={}
    )


def open_sketch(module: Any, open_trace: Any) -> Sketch:
    """The sketch of a design space of `module`, from its trace.

    Raises InternalError for an unknown sampling instruction.
    """
    instructions, known = _plain_trace(open_trace)
    choices: list[Choice] = []
    positions = []
    for i, (kind, _, attributes, _) in enumerate(instructions):
        if kind.startswith("Sample"):
            choices.append(_choice(kind, attributes, known[i]))
            positions.append(i)
    sketch = Sketch(tuple(instructions), tuple(choices), tuple(positions))
    located = [i for i, choice in enumerate(choices) if isinstance(choice, Location)]
    if not located:
        return sketch
    for i, location in zip(located, _locations(module, open_trace, sketch, located), strict=True):
        choices[i] = location
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
    raise InternalError(f"unknown sampling instruction {kind}")


def _plain_trace(trace: Any) -> tuple[list[Any], dict[int, Any]]:
    """The instructions of a trace, and its decisions by instruction index."""
    instructions, decisions = plain(trace.as_json())
    return instructions, {int(i): decision for i, decision in decisions}


class _Probe:
    """A random program of a sketch: its decisions and nests by instruction index."""

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
        """Indices of loops with more than one step in any nest of the program."""
        return {
            i for nest in self.nests.values() for i, extent in enumerate(nest.extents) if extent > 1
        }

    def _look(self, instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
        if str(instruction.kind.name) == "SampleComputeLocation":
            position = len(self._schedule.trace.insts)
            # On a copy: queries add instructions to the trace.
            copy = self._schedule.copy()
            loops, reduces = _consumer_loops(copy, inputs[0])
            extents = tuple(int(loop.extent) for loop in loops)
            valid = _valid_locations(copy, inputs[0]) if self._asks else None
            self.nests[position] = _Nest(valid, extents, reduces, _parts(self._schedule, loops))
        return decision


def _probes(module: Any, open_trace: Any, sketch: Sketch, count: int, asked: int) -> list[_Probe]:
    """Replay random programs. Tiles and categories are drawn here, since TVM's first random numbers
    hardly depend on its seed.

    Of several draws the one is taken that distinguishes most tile parts.
    """
    located = {
        position
        for choice, position in zip(sketch.choices, sketch.positions, strict=True)
        if isinstance(choice, Location)
    }
    rng = np.random.default_rng(_PROBES)
    draws = [sketch.sample(count, rng) for _ in range(_DRAWS)]
    distinct_parts = [np.unique(np.hstack(sketch.values(draw)), axis=1).shape[1] for draw in draws]
    probes: list[_Probe] = []
    for picks in draws[int(np.argmax(distinct_parts))]:
        decisions = {i: d for i, d in sketch.decisions(picks).items() if i not in located}
        seed = int(rng.integers(2**30, 2**31 - 1))
        try:
            probes.append(_Probe(module, open_trace, decisions, seed, len(probes) < asked))
        except Exception as error:  # rejected by TVM
            raise_mistake(error)
    return probes


def _valid_locations(schedule: Any, block: Any) -> tuple[int, ...]:
    """All locations that TVM accepts here, ascending.

    TVM lowers an invalid location to the next valid one: query from the highest downwards.
    """
    locations: list[int] = []
    wanted = 2**20
    while True:
        schedule.sample_compute_location(block, decision=wanted)
        trace = schedule.trace
        taken = int(trace.decisions[trace.insts[-1]])
        if locations and taken >= locations[-1]:
            return tuple(reversed(locations))
        locations.append(taken)
        wanted = taken - 1


def _consumer_loops(schedule: Any, block: Any) -> tuple[list[Any], tuple[bool, ...]]:
    """The loops around the only consumer of `block`, and whether they are reduction loops; empty
    for several consumers.
    """
    consumers = schedule.get_consumers(block)
    loops = [schedule.get(loop) for loop in schedule.get_loops(consumers[0])] if consumers else []
    if len(consumers) != 1 or not loops or not isinstance(loops[-1].body, tvm.s_tir.SBlockRealize):
        return [], ()
    realize = loops[-1].body
    reducing = {
        variable
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if int(iterator.iter_type) == REDUCTION
        for variable in tvm.tirx.analysis.undefined_vars(value)
    }
    return loops, tuple(loop.loop_var in reducing for loop in loops)


def _parts(schedule: Any, loops: Sequence[Any]) -> tuple[tuple[int, int] | None, ...]:
    """The tile part of each loop, according to the splits in the trace so far."""
    sampled: dict[Any, tuple[int, int]] = {}
    made: dict[Any, tuple[int, int]] = {}
    for position, instruction in enumerate(schedule.trace.insts):
        if instruction.kind.name == "SamplePerfectTile":
            sampled.update((out, (position, i)) for i, out in enumerate(instruction.outputs))
        elif instruction.kind.name == "Split":
            for factor, loop in zip(instruction.inputs[1:], instruction.outputs, strict=True):
                if factor in sampled:
                    try:
                        made[schedule.get(loop).loop_var] = sampled[factor]
                    except Exception as error:  # the loop no longer exists
                        raise_mistake(error)
    return tuple(made.get(loop.loop_var) for loop in loops)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """TVM's answers for a location sampling: whether its block may be inlined, and whether the rule
    predicts all valid locations."""

    inline: bool
    ruled: bool


#: By the digest of a sketch's instructions: the number of probes that identify the tiles of loops,
#: and the verdict on each location.
_verdicts: dict[str, tuple[int, list[_Verdict]]] = {}


def _locations(
    module: Any, open_trace: Any, sketch: Sketch, located: Sequence[int]
) -> list[Location]:
    """The choices `located` of a sketch.

    TVM's answers do not depend on extents, and the queries take most of the time: they run once for
    all tasks with the same instructions (such as all depthwise convolutions).
    """
    structure = digest(canonical_json([_unvalued(i) for i in sketch.instructions]))
    count, verdicts = _verdicts.get(structure, (_PROBES, []))
    probes = _probes(module, open_trace, sketch, count, asked=0 if verdicts else _ASKED)
    nests = [[probe.nests[sketch.positions[i]] for probe in probes] for i in located]
    if not verdicts:
        verdicts = [_asked(sketch, probes, of_location) for of_location in nests]
        if probes and all(nest.extents for of_location in nests for nest in of_location):
            # Only one, since others would move its loops.
            exact = len(located) == 1 and verdicts[0].ruled and None not in nests[0][0].parts
            _verdicts[structure] = 1 if exact else _PROBES, verdicts
    return [
        (_by_rule(sketch, probes, of_location, verdict.inline) if verdict.ruled else None)
        or _seen(probes, of_location, verdict.inline)
        for of_location, verdict in zip(nests, verdicts, strict=True)
    ]


def _asked(sketch: Sketch, probes: Sequence[_Probe], nests: Sequence[_Nest]) -> _Verdict:
    """Compare the rule with TVM's answers to the probes that queried."""
    asked = [(p, n) for p, n in zip(probes, nests, strict=True) if n.valid is not None]
    inline = any(-2 in (nest.valid or ()) for _, nest in asked)
    rule = _by_rule(sketch, probes, nests, inline)
    ruled = rule is not None and all(
        _expected(rule, sketch, probe.decisions) == nest.valid for probe, nest in asked
    )
    return _Verdict(inline, ruled)


def _unvalued(instruction: Any) -> Any:
    """An instruction without its annotation value, which differs between tasks."""
    kind, inputs, attributes, outputs = instruction
    return [kind, inputs[:1] if kind == "Annotate" else inputs, attributes, outputs]


def _seen(probes: Sequence[_Probe], nests: Sequence[_Nest], inline: bool) -> Location:
    """Every loop with more than one step in a probe, here or, since blocks move, anywhere; TVM
    corrects it on replay."""
    return Location.anywhere(
        [
            *[-2] * inline,
            -1,
            *(location for nest in nests for location in nest.valid or ()),
            *(location for probe in probes for location in probe.long_loops()),
        ]
    )


def _by_rule(
    sketch: Sketch, probes: Sequence[_Probe], nests: Sequence[_Nest], inline: bool
) -> Location | None:
    """Inlined, at the root, and at each loop up to the last one outside of the reduction.

    A loop that no split created (such as those of a decomposed reduction) is identified with the
    tile part of equal extent in every probe. None if there is a loop with another, varying extent,
    if there are several consumers, or if other locations move the consumer.
    """
    kinds = {nest.reduces for nest in nests}
    if len(kinds) != 1 or () in kinds:
        return None
    reduces = nests[0].reduces
    last = max((i for i, inside in enumerate(reduces) if not inside), default=-1)
    choice_at = {position: choice for choice, position in enumerate(sketch.positions)}
    factors = {
        (position, part): [probe.decisions[position][part] for probe in probes]
        for choice, position in zip(sketch.choices, sketch.positions, strict=True)
        if isinstance(choice, Tile)
        for part in range(choice.options.shape[1])
    }
    places = [(-2, -1, 0, False)] * inline + [(-1, -1, 0, False)]
    for i in range(last + 1):
        extents = [nest.extents[i] for nest in nests]
        factor = nests[0].parts[i]
        if factor is None and len(set(extents)) > 1:
            factor = next((key for key, values in factors.items() if values == extents), None)
            if factor is None:
                return None
        if factor is not None:
            places.append((i, choice_at[factor[0]], factor[1], reduces[i]))
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
