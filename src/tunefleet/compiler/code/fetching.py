"""The vectors by which the threads of a GPU fetch together.

MetaSchedule draws how many numbers a thread fetches at once, and does not look at where these are.
Numbers that do not lie side by side are put together one by one, which TVM's code for CUDA can for
few types; a vector that does not begin at a multiple of itself is an error of the GPU; and no GPU
moves more than 16 bytes at once. So a fetch has the widest vectors, up to those that were drawn,
that it can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.code.indices import element, evaluated
from tunefleet.compiler.code.loop_nests import loads_of
from tunefleet.compiler.space.matrices import most_of, narrowed
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import COPIED_STAGES, FETCHED

tvm = load_tvm()
tirx = tvm.tirx

#: Of tirx.For.
_VECTORIZED = 2
#: Places at which an index that is no sum is looked at.
_LOOKED_AT = 64

Places = Mapping[Any, NDArray[np.int64]]


def fitting(parsed: Sequence[Any], schedule: Any) -> list[list[Any]] | None:
    """The decisions of a trace, parsed from its JSON, with the width of each fetch that it can
    have; None where all can have theirs. `schedule` is what the trace has made."""
    instructions = parsed[0]
    decisions = {int(position): decision for position, decision in parsed[1]}
    drawn = {
        outputs[0]: (position, attributes[0])
        for position, (kind, _, attributes, outputs) in enumerate(instructions)
        if kind == "SampleCategorical" and position in decisions
    }
    changed = False
    for position, (kind, inputs, attributes, _) in enumerate(instructions):
        if kind != "Annotate" or attributes[0] != FETCHED or inputs[1] not in drawn:
            continue
        sampled, widths = drawn[inputs[1]]
        width = int(widths[decisions[sampled]])
        narrow = _fitting(schedule, schedule.trace.insts[position].inputs[0], width)
        if narrow != width and narrow in widths:
            decisions[sampled] = widths.index(narrow)
            changed = True
    return [[position, decision] for position, decision in decisions.items()] if changed else None


def _fitting(schedule: Any, block: Any, width: int) -> int:
    if width == 1:
        return 1
    statement = schedule.get(block).body
    return narrowed(width, _side_by_side(schedule, block), most_of(statement))


def _side_by_side(schedule: Any, block: Any) -> int:
    """What divides the length and the beginning of each row of numbers that the innermost loop of
    a block reads one after another. 0 where it reads the same all the time."""
    *outer, whole = _loops(schedule, block)
    # Each loop on its own tells all of sums; of others, some places where several are on their way.
    around = [{loop.loop_var: np.arange(int(loop.extent))} for loop in outer]
    rng = np.random.default_rng(0)
    around.append({each.loop_var: rng.integers(0, int(each.extent), _LOOKED_AT) for each in outer})
    found = 0
    for address in _addresses(whole.body):
        along = address({whole.loop_var: np.arange(int(whole.extent))})
        steps = np.diff(along)
        if not steps.any():
            continue
        breaks = np.flatnonzero(steps != 1)
        length = int(breaks[0]) + 1 if len(breaks) else len(along)
        begins = np.concatenate([along[::length], *map(address, around)])
        found = int(np.gcd.reduce(np.append(np.abs(begins), [length, found])))
    return found


def _loops(schedule: Any, block: Any) -> list[Any]:
    """Around a block, outermost first; no step of the schedule's trace, as asking it would be."""
    found: list[Any] = []
    place = schedule.get_sref(block).parent
    while place is not None and isinstance(place.stmt, tirx.For):
        found.insert(0, place.stmt)
        place = place.parent
    return found


def _addresses(realize: Any) -> Iterator[Callable[[Places], NDArray[np.int64]]]:
    """Of each number that a block reads: which element of its buffer it is, where loops are so."""
    for buffer, indices in loads_of(realize.block.body.value):
        yield partial(_address, realize, buffer, indices)


def _address(
    realize: Any, buffer: Any, indices: Sequence[Any], places: Places
) -> NDArray[np.int64]:
    iterators = [each.var for each in realize.block.iter_vars]
    values = [evaluated(value, places) for value in realize.iter_values]
    found = element(buffer, indices, dict(zip(iterators, values, strict=True)))
    return np.broadcast_to(found, np.broadcast_shapes(*(each.shape for each in places.values())))


def synchronous_where_apart(schedule: Any) -> None:
    """Has a GPU not copy on its own what does not lie side by side, or begins between two vectors:
    TVM would have it copy vectors all the same. Programs that others postprocessed may fetch so."""
    root = schedule.get_sblock("root")
    for block in schedule.get_child_blocks(root):
        loops = schedule.get_loops(block)
        ahead = [loop for loop in loops if COPIED_STAGES in schedule.get(loop).annotations]
        if not ahead or not isinstance(schedule.get(block).body, tirx.BufferStore):
            continue
        innermost = schedule.get(loops[-1])
        vector = int(innermost.extent) if int(innermost.kind) == _VECTORIZED else 1
        if vector > 1 and _side_by_side(schedule, block) % vector:
            schedule.unannotate(ahead[0], COPIED_STAGES)
