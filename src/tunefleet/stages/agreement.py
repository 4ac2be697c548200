"""Whether a module computes what its source framework does, as far as that is determined at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.core.step import DifferenceMeasure

#: Largest accepted difference from the source framework, relative to the largest output: float32
#: sums in another order through hundreds of layers.
TOLERANCE = 1e-3
#: What is accepted at least where sums are rounded to 8 bits: one of them, near the middle between
#: two steps, may fall to the other side. 255 steps may reach from below zero to as far above it.
_STEP = 2 / 255
#: Where the source framework's own outputs move by more than that when the last bit of its inputs
#: does, so many times that movement is accepted,
_TIMES_OWN = 4.0
#: but never more than this.
MOST_TOLERANCE = 0.1
#: Steps of the last bit by which sums in another order move what is between the layers. Where such
#: a movement of the inputs changes the outputs altogether, the network decides by it: which of two
#: boxes comes first, say.
_STEPS = 64
#: A comparison that accepts more than that says little, and others are tried.
_CLEAR = 0.01
#: The float type of so few digits that rounding between layers may decide the outputs.
COARSE = "bfloat16"
#: What rounding to few digits at some dozens of layers adds up to, in the mean: 8 steps of the
#: type. Where inputs are words, which have no last bit, nothing else tells.
_LEAST_IN_MEAN = {COARSE: 8 * 2.0**-8, "float16": 8 * 2.0**-11}
#: Example inputs that are tried where those before did not determine the outputs.
_DRAWS = 5
#: Where rounding to 8 bits decides the outputs: so many times the mean difference between the
#: source framework's outputs and those that it has otherwise is accepted, and no more than this.
_TIMES_MEAN, _MOST_MEAN = 1.5, 0.3

Arrays = Sequence[NDArray[Any]]
#: Outputs by the index of a signature and its inputs.
RunSignature = Callable[[int, Arrays], list[NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """`inputs` that were compared at, and what the source framework makes of them (`expected`), for
    each signature. `difference` is the worst of all, `tolerance` what may be accepted; of which
    difference tells `measure`. Where it is not `ordered`, the numbers of each output were compared
    by size, wherever they stand. Of the outputs the source framework gives the share `unknown` as
    NaN, and `avoided` at the inputs that were given, where others were taken."""

    inputs: tuple[Arrays, ...]
    expected: tuple[list[NDArray[Any]], ...]
    difference: float
    tolerance: float
    ordered: bool = True
    measure: DifferenceMeasure = DifferenceMeasure.LARGEST
    avoided: float = 0.0

    @property
    def unknown(self) -> float:
        return _unknown_share(self.expected)

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


def agreement(
    inputs: Sequence[Arrays],
    float_type: str,
    reference: RunSignature,
    module: RunSignature,
    otherwise: RunSignature | None = None,
    *,
    quantised: bool = False,
) -> Agreement:
    """Compare a module with its source framework at example inputs, given for each signature.

    At some inputs a network may be chaotic: their last bits decide what comes out, in the source
    framework too. Other inputs of the same numbers are tried then. A detector that sorts hundreds
    of boxes by nearly equal scores is so at all inputs: the order of what it finds is left out. A
    deep network that rounds to 8 bits after sums of floats is so too: it is compared in the mean,
    with how the source framework differs from itself where it runs `otherwise`: as right, in
    another order of sums. `quantised`: the network multiplies 8-bit integers. So is one that rounds
    to bfloat16 or float16 at each of its layers: it is compared in the mean with how the source
    framework's outputs move when the last such bit of its inputs does.

    Where the source framework gives NaN, as for roots of negative numbers, nothing is compared:
    what it gives without the signs of the inputs is compared as well, if less of that is NaN.
    """

    def compared(inputs: tuple[Arrays, ...], expected: tuple[list[NDArray[Any]], ...]) -> Agreement:
        return _compared(
            inputs, expected, float_type, reference, module, otherwise, quantised=quantised
        )

    given = tuple(inputs)
    expected = _outputs(reference, given)
    found = compared(given, expected)
    unknown = _unknown_share(expected)
    if not unknown:
        return found
    unsigned = without_signs(given)
    known = _outputs(reference, unsigned)
    if _unknown_share(known) >= unknown or not (
        found.holds or _known_difference(expected, _outputs(module, given)) <= found.tolerance
    ):
        return found
    return replace(compared(unsigned, known), avoided=unknown)


def without_signs(inputs: Sequence[Arrays]) -> tuple[Arrays, ...]:
    """Inputs that have roots and logarithms."""
    # The size of an array without axes is no array; ONNX Runtime takes arrays alone.
    return tuple(
        [np.asarray(abs(a)) if a.dtype.kind == "f" else a for a in each] for each in inputs
    )


def _outputs(run: RunSignature, inputs: Sequence[Arrays]) -> tuple[list[NDArray[Any]], ...]:
    return tuple(run(i, each) for i, each in enumerate(inputs))


def _unknown_share(outputs: Sequence[Arrays]) -> float:
    """The share of NaN in the outputs of all signatures."""
    arrays = [array for each in outputs for array in each]
    unknown = sum(int(np.isnan(a).sum()) for a in arrays if a.dtype.kind in "fc")
    return unknown / max(1, sum(array.size for array in arrays))


def _known_difference(expected: Sequence[Arrays], actual: Sequence[Arrays]) -> float:
    """The worst difference where the source framework gives no NaN."""
    from tunefleet.compiler.code.executable import worst_difference

    def known(array: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
        return np.where(np.isnan(like), 0, array) if like.dtype.kind in "fc" else array

    pairs = [
        both for each in zip(expected, actual, strict=True) for both in zip(*each, strict=True)
    ]
    if any(e.shape != a.shape for e, a in pairs):
        return math.inf
    return worst_difference([known(e, e) for e, _ in pairs], [known(a, e) for e, a in pairs])


def _compared(
    inputs: tuple[Arrays, ...],
    expected: tuple[list[NDArray[Any]], ...],
    float_type: str,
    reference: RunSignature,
    module: RunSignature,
    otherwise: RunSignature | None,
    *,
    quantised: bool,
) -> Agreement:
    """As `agreement`, at inputs for which `expected` is what the source framework gives."""
    from tunefleet.compiler.graph.sensitivity import nudged

    found = _largest(inputs, expected, float_type, reference, module, quantised)
    times = _TIMES_MEAN
    if float_type == COARSE or (otherwise is None and float_type in _LEAST_IN_MEAN):
        otherwise, times = lambda i, given: reference(i, nudged(given, float_type)), _TIMES_OWN
    if found.holds or otherwise is None:
        return found
    mean = DifferenceMeasure.MEAN
    own = difference_of(expected, otherwise, inputs, measure=mean)
    if not math.isfinite(own):  # what was moved by its last bit was no weight
        return found
    least = _LEAST_IN_MEAN.get(float_type, 0.0)
    tolerance = min(max(times * own, least), _MOST_MEAN)
    difference = difference_of(expected, module, inputs, measure=mean)
    in_mean = Agreement(inputs, expected, difference, tolerance, True, mean)
    return in_mean if in_mean.holds else found


def otherwise_of(
    kind: str, reference: Callable[..., Any], *, quantised: bool
) -> RunSignature | None:
    """A source framework of a kind, run as right in another way; None where it has none. ONNX
    Runtime does without its optimisations and takes weights moved by their last bits, since the
    order of sums may be the same without the former. PyTorch takes such weights where sums are
    rounded to 8 bits. `reference` takes how it is run beside the number of a signature and inputs.
    """
    if kind == "torch" and quantised:
        return partial(reference, nudged=True)
    return partial(reference, unoptimised=True, nudged=True) if kind == "onnx" else None


def _largest(
    inputs: tuple[Arrays, ...],
    first_expected: tuple[list[NDArray[Any]], ...],
    float_type: str,
    reference: RunSignature,
    module: RunSignature,
    quantised: bool,
) -> Agreement:
    """As `_compared`, by the largest difference."""
    from tunefleet.compiler.graph.sensitivity import nudged, shuffled

    # Where sums of floats are rounded to few bits, that none was tipped over is luck: another
    # program of the same may. Nothing but integers differs by nothing.
    enough, least = (0.0, _STEP) if quantised else (TOLERANCE, TOLERANCE)
    tries: list[Agreement] = []
    for draw, ordered in (*((draw, True) for draw in range(_DRAWS)), (0, False)):
        if not ordered and any(each.holds for each in tries):
            break
        tried = tuple(shuffled(each, draw) for each in inputs) if draw else inputs
        expected = _outputs(reference, tried) if draw else first_expected
        difference = difference_of(expected, module, tried, ordered=ordered)
        if difference <= enough:
            return Agreement(tried, expected, difference, TOLERANCE, ordered)
        once, often = ([nudged(each, float_type, n) for each in tried] for n in (1, _STEPS))
        own, moved = (
            difference_of(expected, reference, each, ordered=ordered) for each in (once, often)
        )
        # What a last bit tips over is left to luck where sums are rounded to few bits.
        accepted = accepted_difference(max(own, moved) if quantised else own, least)
        outcome = Agreement(tried, expected, difference, accepted, ordered)
        if outcome.holds and (quantised or outcome.tolerance <= _CLEAR):
            return outcome
        tries.append(outcome)
        if not outcome.holds and max(_TIMES_OWN * own, moved) <= MOST_TOLERANCE:
            return outcome
    return min(tries, key=lambda each: (not each.holds, each.tolerance))


def accepted_difference(own: float, least: float = TOLERANCE) -> float:
    """What may lie between two right implementations, by how far the outputs of one move when the
    last bit of its inputs does."""
    return min(max(least, _TIMES_OWN * own), MOST_TOLERANCE)


def difference_of(
    expected: Sequence[list[NDArray[Any]]],
    run: RunSignature,
    inputs: Sequence[Arrays],
    *,
    ordered: bool = True,
    measure: DifferenceMeasure = DifferenceMeasure.LARGEST,
) -> float:
    """The worst difference of what `run` makes of inputs from what is expected, of all signatures;
    see `executable.worst_difference`."""
    from tunefleet.compiler.code.executable import mean_difference, worst_difference

    in_mean = measure is DifferenceMeasure.MEAN
    of = mean_difference if in_mean else partial(worst_difference, ordered=ordered)
    both = zip(expected, inputs, strict=True)
    return max(of(each, run(i, given)) for i, (each, given) in enumerate(both))
