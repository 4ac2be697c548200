"""Models MetaSchedule's postprocessing of a program's loops, in its order: parallel and vectorised
loops (`RewriteParallelVectorizeUnroll`), decomposed reductions (`RewriteReductionBlock`).

Follows TVM 0.27's src/s_tir/meta_schedule/postproc, whose rules depend only on extents and strides.
"""

from __future__ import annotations

import math

from tunefleet.compiler.nests.program import Around, Placed, TemplateProgram
from tunefleet.compiler.nests.template import BufferReference, Fetched, Unanswered
from tunefleet.compiler.space.matrices import most_at_once, narrowed
from tunefleet.features.behaviours import Compute, Run


def postprocessed(program: TemplateProgram) -> None:
    """Modifies the loops of a program according to the sketch's annotations."""
    for block, fetched in program.template.fetches.items():
        _fetch(program, block, fetched)
    annotated = program.template.annotated
    if annotated is None:
        return
    unrolled = program.values[annotated.unroll][0] > 0 if annotated.unroll >= 0 else False
    for block in program.order:
        if program.paths[block] and not program.block(block).given:
            _rewrite(program, block, annotated.parallel, annotated.vectorize)
            if unrolled and any(program.block(block).reduces):
                program.paths[block][0].annotated = True


def _fetch(program: TemplateProgram, block: int, fetched: Fetched) -> None:
    """Like `RewriteCooperativeFetch`: no vectors if they do not divide the loop, or for elements of
    more than four bytes. Before that vectors are narrowed as in `code/fetching.py`."""
    whole = program.paths[block][-1]
    work = program.block(block).work
    buffers = [program.template.buffers[each.buffer] for each in (work.store, *work.loads)]
    number_bytes = [buffer.element_bytes for buffer in buffers]
    vector = int(program.values[fetched.vector][0])
    if vector > 1:
        if work.compute.casts:
            raise Unanswered("a fetch that computes in other types")
        copied = work.compute == Compute() and not work.conditions
        most = most_at_once(max(number_bytes), min(number_bytes), copied=copied)
        vector = narrowed(vector, _side_by_side(program, block, whole), most)
    if whole.extent % vector or max(number_bytes) > 4:
        vector = 1
    threads = program.product(fetched.threads)
    steps = threads * vector
    if whole.extent <= vector and threads > 1:
        # TVM then detects that only the first step of the thread loop has an effect.
        raise Unanswered("one thread that fetches all")
    outer = Around(whole.slots, -(-whole.extent // steps), step=steps)
    inner = Around(whole.slots, threads, Run.BOUND, step=vector, axis="threadIdx.x")
    made = [outer, inner]
    if vector > 1:
        made.append(Around(whole.slots, vector, Run.VECTORIZED))
    _replace(program, [whole], made)


def _side_by_side(program: TemplateProgram, block: int, whole: Around) -> int:
    """A common divisor of the lengths and start addresses of the contiguous rows that a loop reads;
    0 if the address is constant."""
    found = 0
    for load in program.block(block).work.loads:
        shape = program.template.buffers[load.buffer].shape
        steps = {
            slot: step
            for slot, step in program.flat(block, load, shape).items()
            if step and program.extent(slot) > 1
        }
        if steps.keys().isdisjoint(whole.slots):
            continue
        length = 1
        for slot in reversed(whole.slots):
            if program.extent(slot) == 1:
                continue
            if steps.get(slot) != length:
                break
            length *= program.extent(slot)
            del steps[slot]
        found = math.gcd(found, length, load.first(shape), *steps.values())
    return found


def _rewrite(program: TemplateProgram, block: int, most_parallel: int, most_vector: int) -> None:
    path = program.paths[block]
    count = len(path)
    spatial = [program.is_spatial(loop) for loop in path]
    single = [_has_one_child(program, loop) for loop in path]
    fusible = min(_contiguous(program, block, region) for region in program.block(block).regions)
    rewritable = sum(
        s and one and not loop.annotated for s, one, loop in zip(spatial, single, path, strict=True)
    )
    parallel = _parallel(path, spatial, single, most_parallel)
    vector = _vector(path, spatial, single, most_vector, fusible)
    if parallel != -1 and vector != -1:
        if rewritable == count and fusible == count:
            _fuse_split(program, block, most_vector)
            return
        parallel = min(parallel, count - vector)
    if parallel > 0:
        _fuse(program, path[:parallel], Run.PARALLEL)
    if vector > 0:
        _fuse(program, program.paths[block][-vector:], Run.VECTORIZED)


def _parallel(path: list[Around], spatial: list[bool], single: list[bool], most: int) -> int:
    if most == -1:
        return -1
    count, steps = 0, 1
    for loop, is_spatial, one in zip(path, spatial, single, strict=True):
        if not is_spatial or loop.annotated:
            break
        count += 1
        steps *= loop.extent
        if steps > most or not one:
            break
    return -1 if steps == 1 else count


def _vector(
    path: list[Around], spatial: list[bool], single: list[bool], most: int, fusible: int
) -> int:
    if most == -1:
        return -1
    count, steps = 0, 1
    for loop, is_spatial, one in zip(path[::-1], spatial[::-1], single[::-1], strict=True):
        if not is_spatial or count >= fusible or loop.annotated or not one:
            break
        steps *= loop.extent
        if steps > most:
            break
        count += 1
    return -1 if steps == 1 else count


def _contiguous(program: TemplateProgram, block: int, region: BufferReference) -> int:
    """The number of innermost loops that traverse a region contiguously."""
    path = program.paths[block]
    strides = _strides(program, block, region, path)
    count, before = 0, -1
    for place in range(len(path) - 1, -1, -1):
        if strides[place] == 0:
            count += 1
            continue
        if before == -1:
            if strides[place] != 1 and count:
                break
        elif strides[place] != strides[before] * path[before].extent:
            break
        count += 1
        before = place
    return count


def _strides(
    program: TemplateProgram, block: int, region: BufferReference, path: list[Around]
) -> list[int]:
    """The strides as computed by TVM: of the last index that a loop moves, ignoring subtraction and
    division."""
    shape = program.template.buffers[region.buffer].shape
    scale, strides = 1, [0] * len(path)
    for index, extent in zip(reversed(region.indices), reversed(shape), strict=True):
        if index.constant >= 0 and not index.remains:
            steps = program.followed(block, index.terms)
            if index.divisor > 1:
                whole = {s: n for s, n in steps.items() if n % index.divisor == 0}
                steps = {slot: step // index.divisor for slot, step in whole.items()}
            for place, loop in enumerate(path):
                if not strides[place] and len(loop.slots) == 1:
                    strides[place] = scale * steps.get(loop.slots[0], 0)
        scale *= extent
    return strides


def _has_one_child(program: TemplateProgram, loop: Around) -> bool:
    children = set()
    for block, path in enumerate(program.paths):
        if loop in path:
            place = path.index(loop) + 1
            children.add(id(path[place]) if place < len(path) else -1 - block)
    return len(children) == 1


def _fuse(program: TemplateProgram, loops: list[Around], run: Run) -> Around:
    slots = tuple(slot for loop in loops for slot in loop.slots)
    extent = 1
    for loop in loops:
        extent *= loop.extent
    if any(loop.step != 1 for loop in loops):
        raise Unanswered("a loop that was fused and split is fused again")
    fused = Around(slots, extent, run, annotated=False)
    _replace(program, loops, [fused])
    return fused


def _fuse_split(program: TemplateProgram, block: int, vector: int) -> None:
    path = list(program.paths[block])
    fused = _fuse(program, path, Run.SERIAL)
    outer = Around(fused.slots, -(-fused.extent // vector), Run.PARALLEL, step=vector)
    inner = Around(fused.slots, vector, Run.VECTORIZED)
    _replace(program, [fused], [outer, inner])


def _replace(program: TemplateProgram, loops: list[Around], by: list[Around]) -> None:
    for path in program.paths:
        if loops[0] in path:
            at = path.index(loops[0])
            path[at : at + len(loops)] = by


def placed(program: TemplateProgram) -> list[Placed]:
    """The stores of a program in order, with their surrounding loops."""
    found = [
        Placed(block, program.block(block).work, program.paths[block]) for block in program.order
    ]
    for block in program.order:
        first = program.block(block).first
        if first is None:
            continue
        path = program.paths[block]
        at = next((i for i, loop in enumerate(path) if not program.is_spatial(loop)), None)
        if at is None:
            raise Unanswered("a reduction has no loop of its own")
        spatial = {
            slot
            for steps, reduces in zip(
                program.steps(block), program.block(block).reduces, strict=True
            )
            if not reduces
            for slot in steps
        }
        copies = [
            Around(loop.slots, loop.extent, loop.run, loop.step, axis=loop.axis)
            for loop in path[at:]
            if spatial & set(loop.slots)
        ]
        before = next(i for i, each in enumerate(found) if path[at] in each.path)
        found.insert(before, Placed(block, first, path[:at] + copies))
    return found
