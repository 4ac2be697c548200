"""Vector widths of cooperative fetches on a GPU.

MetaSchedule samples the number of elements that a thread fetches at once, without checking their
addresses. TVM's CUDA code can assemble non-contiguous elements for few types only, a misaligned
vector is a GPU error, and no GPU moves more than 16 bytes at once. Therefore a fetch gets the
widest valid vectors, up to the sampled width.
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
#: The number of positions at which a non-linear index is evaluated.
_LOOKED_AT = 64

Places = Mapping[Any, NDArray[np.int64]]


def fitting(parsed: Sequence[Any], schedule: Any) -> list[list[Any]] | None:
    """The decisions of a trace, parsed from JSON, with valid fetch widths; None if all are already
    valid. `schedule` is the result of the trace."""
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
    """A common divisor of the lengths and start addresses of the contiguous rows that the innermost
    loop of a block reads; 0 if the address is constant."""
    *outer, whole = _loops(schedule, block)
    # For linear indices each loop is evaluated alone; for others, some positions with several.
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
    """The loops around a block, outermost first, without adding an instruction to the trace."""
    found: list[Any] = []
    place = schedule.get_sref(block).parent
    while place is not None and isinstance(place.stmt, tirx.For):
        found.insert(0, place.stmt)
        place = place.parent
    return found


def _addresses(realize: Any) -> Iterator[Callable[[Places], NDArray[np.int64]]]:
    """For each read of a block, a function from loop values to the element offset."""
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
    """Disable asynchronous copies of non-contiguous or misaligned elements, which TVM would copy as
    vectors anyway. They occur in programs postprocessed by others."""
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
