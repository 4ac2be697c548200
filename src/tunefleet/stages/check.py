"""The check step: the plain module computes what its source framework does, or nothing is tuned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefleet.artifacts.arrays import load_arrays, save_arrays
from tunefleet.artifacts.network import entry_name
from tunefleet.core.precision import BF16, FLOAT16, FLOAT32, FLOATS, FP16, LARGEST_FLOAT16
from tunefleet.core.roofline import Bandwidth, levels_to_read
from tunefleet.core.step import Checked, DifferenceMeasure, Remark, StepKind
from tunefleet.errors import JobError
from tunefleet.hardware.processor import device_identity
from tunefleet.stages import work
from tunefleet.stages.agreement import (
    MOST_TOLERANCE,
    TOLERANCE,
    Agreement,
    Arrays,
    RunSignature,
    agreement,
    difference_of,
    otherwise_of,
    without_signs,
)
from tunefleet.stages.place import StageContext, StepRequest
from tunefleet.stages.prepared import (
    PreparedNetwork,
    beside_device,
    object_of,
    on_device,
    prepared_of,
)
from tunefleet.workers.memory import check_fits, machine_memory
from tunefleet.workers.pool import CallFailure

_FILE = "compared.npz"
#: What becomes of NaN inside of a network may differ: docs/operators.md.
_NUMBERS = (
    "export it as .pt2 with example inputs at which it gives numbers; if it should give numbers at "
    "all inputs, report it"
)


def run(place: StageContext, request: StepRequest) -> tuple[Checked, tuple[Remark, ...]]:
    """Compare the plain module with the source framework, on the device.

    Raises JobError when they disagree, whatever tuning made of it would be wrong too, and before
    when this machine has not the memory for it.
    """
    owner, prepared = request.key.owner, prepared_of(place, request.preparation)
    examples = load_arrays(
        object_of(place, owner, prepared.imported.examples, StepKind.IMPORT),
        len(prepared.info.signatures),
    )
    outcome = compared(prepared, examples, place, request.preparation.source.options.precision)
    objects = place.objects(owner)
    with objects.draft() as draft:
        save_arrays(Path(draft, _FILE), [*outcome.inputs, *outcome.expected])
        expected = objects.put(Path(draft, _FILE))
    caveats = caveats_of(outcome)
    checked = Checked(
        outcome.difference,
        outcome.tolerance,
        outcome.ordered,
        expected,
        caveats,
        peak_gflops(place),
        outcome.measure,
        bandwidths=bandwidths(place),
    )
    told = [*caveats, *_crowded(place)]
    return checked, tuple(Remark(caveat, warning=True) for caveat in told)


def _crowded(place: StageContext) -> tuple[str, ...]:
    """That other processes use the GPU."""
    if place.gpu_here is None:
        return ()
    others = on_device(place, "asking the device failed", work.others_on_gpu)
    if not others:
        return ()
    said = f"{others} other processes use" if others > 1 else "another process uses"
    return (f"{said} {place.device.spec.url}: measurements will be disturbed",)


def compared(
    prepared: PreparedNetwork,
    examples: Sequence[Arrays],
    place: StageContext,
    precision: str = FLOAT32,
) -> Agreement:
    """How the plain module, whose products of floats are in a precision, and the source framework
    agree; raises JobError where they do not."""
    imported, name = prepared.imported, prepared.info.name
    if not place.is_here and imported.segments:
        raise JobError(
            f"{name}: {imported.segments[0].framework} runs a part of it, and is not there",
            cure="`tunefleet tasks` lists which part; tune it for this machine",
        )
    check_fits(name, imported.footprint, machine_memory())
    place.grant(imported.footprint)

    def reference(index: int, inputs: Arrays, **how: bool) -> list[NDArray[Any]]:
        what, threads = f"{name}: the source framework failed", place.framework_threads
        source, gpu = {**prepared.references[index], **how}, place.gpu_here
        return beside_device(place, what, work.run_reference, source, list(inputs), threads, gpu)

    module = running(name, prepared.plain, place)
    kind = prepared.references[0]["kind"]
    otherwise = otherwise_of(kind, reference, quantised=imported.quantised)
    if precision in FLOATS:
        # It rounds less: how it differs from itself says nothing.
        otherwise = None
    outcome = agreement(
        examples, imported.float_type, reference, module, otherwise, quantised=imported.quantised
    )
    if any(segment.is_random for segment in imported.segments) and not _by_number(outcome):
        raise JobError(
            f"{name}: the network draws random numbers, which differ each time, and its outputs "
            "follow them: nothing can be verified",
            cure="export it without them, or make the input that scales them zero: --constant",
        )
    if not outcome.holds:
        unsigned = without_signs(examples)
        expected = [reference(i, each) for i, each in enumerate(unsigned)]
        holds = difference_of(expected, module, unsigned) <= TOLERANCE
        raise _disagreement(name, outcome, precision, signs=holds)
    return outcome


def _by_number(outcome: Agreement) -> bool:
    """Whether both agree, and not only in a way that random numbers may pass by luck."""
    return outcome.holds and outcome.ordered and outcome.measure is DifferenceMeasure.LARGEST


def _disagreement(
    name: str, outcome: Agreement, precision: str, *, signs: bool = False
) -> JobError:
    """`signs`: at the same inputs without their signs both agree."""
    how_far = f"by {outcome.difference:.1e} of the largest output"
    if outcome.unknown:
        return JobError(
            f"{name}: the source framework gives NaN for {outcome.unknown:.2%} of the outputs at "
            "the example inputs, and the imported network has it in other places",
            cure=_NUMBERS,
        )
    if precision in FLOATS:
        return _too_coarse(name, outcome, precision, how_far)
    if signs:
        return JobError(
            f"{name}: the imported network differs from its source framework {how_far} where "
            "inputs are negative, and only there: NaN inside, as of a root, may do it",
            cure=_NUMBERS,
        )
    if outcome.tolerance >= MOST_TOLERANCE:
        return JobError(
            f"{name}: at the example inputs the source framework's own outputs move far with the "
            f"last bit of the inputs, and the imported network differs from them {how_far}: "
            "whether it is right cannot be told",
            cure="export it as .pt2 with example inputs as it will get them",
        )
    return JobError(
        f"{name}: the imported network differs from its source framework {how_far}",
        cure="report the network; its import is wrong and tuning it would be too",
    )


def _too_coarse(name: str, outcome: Agreement, precision: str, how_far: str) -> JobError:
    if precision == BF16:
        cure = "leave out --precision: it needs more digits"
    else:
        cure = f"use --precision {BF16}, or leave it out"
    if precision == FP16 and math.isinf(outcome.difference):
        return JobError(
            f"{name}: what its products read exceeds {LARGEST_FLOAT16}, the largest number of "
            f"{FLOAT16}: outputs that are numbers in its source framework are none",
            cure=cure,
        )
    return JobError(
        f"{name}: with its products in {FLOATS[precision]} the network differs from its source "
        f"framework {how_far}",
        cure=cure,
    )


def running(name: str, path: Path, place: StageContext, calls: int = 1) -> RunSignature:
    """Runs a module of a network on the device; the outputs are those of the last of `calls`."""

    def run(index: int, inputs: Arrays) -> list[NDArray[Any]]:
        what, entry = f"{name}: the compiled module failed", entry_name(index)
        return on_device(place, what, work.run_network, str(path), entry, list(inputs), calls)

    return run


def peak_gflops(place: StageContext) -> float | None:
    """float32 GFLOP/s that the device's threads reach at best, measured; None where that failed."""
    where = str(place.machine.scratch)
    outcome = place.device.call(work.peak_gflops, place.target, where, timeout_s=60)
    return None if isinstance(outcome, CallFailure) else outcome


def bandwidths(place: StageContext) -> tuple[Bandwidth, ...]:
    """How fast this machine's threads read from each level of its memory, measured; nothing of a
    device elsewhere, to which as many bytes would have to be sent."""
    if place.remote is not None:
        return ()
    where = str(place.machine.scratch)
    levels = levels_to_read(device_identity().caches, place.device.threads)
    outcome = place.device.call(work.bandwidths, place.target, where, levels, timeout_s=60)
    return () if isinstance(outcome, CallFailure) else outcome


def caveats_of(outcome: Agreement) -> tuple[str, ...]:
    """Why the verification says less than that of other networks, for the user to know."""
    from tunefleet.compiler.code.executable import LEAST_SCALE

    told = []
    if outcome.avoided:
        told.append(
            f"the source framework gives NaN for {outcome.avoided:.2%} of the outputs at the "
            "example inputs: they are compared at the same inputs without their signs as well"
        )
    if outcome.unknown:
        told.append(
            f"the source framework gives NaN for {outcome.unknown:.2%} of the outputs at the "
            "example inputs, and so does the network: of these nothing is verified"
        )
    if not outcome.ordered:
        told.append(
            "in the source framework the order of what the network puts out is decided by the "
            "last bits of the inputs: the numbers of each output are compared by size"
        )
    if outcome.measure is DifferenceMeasure.MEAN:
        told.append(
            "rounding to few bits decides the outputs: the source framework's own ones move as far "
            "with the order of its sums, or the last bit of its weights or inputs, and in the "
            f"mean of squares a difference of {outcome.tolerance:.1%} is accepted"
        )
    elif outcome.tolerance > TOLERANCE:
        told.append(
            "the source framework's own outputs move with the last bit of the inputs: a "
            f"difference of {outcome.tolerance:.1e} of the largest output is accepted"
        )
    floats = (a for each in outcome.expected for a in each if a.size and a.dtype.kind == "f")
    if any(abs(array).max() < LEAST_SCALE for array in floats):
        told.append(
            f"an output stays below {LEAST_SCALE:g} on the example inputs: differences from "
            f"the source framework of {LEAST_SCALE * TOLERANCE:g} are not seen"
        )
    return tuple(told)
