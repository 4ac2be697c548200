"""Whether a module computes what its source framework does, as far as that is determined at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

#: Largest accepted difference from the source framework, relative to the largest output: float32
#: sums in another order through hundreds of layers.
TOLERANCE = 1e-3
#: Where the source framework's own outputs move by more than that when the last bit of its inputs
#: does, so many times that movement is accepted,
_TIMES_OWN = 4.0
#: but never more than this.
_MOST_TOLERANCE = 0.1
#: Steps of the last bit by which sums in another order move what is between the layers. Where such
#: a movement of the inputs changes the outputs altogether, the network decides by it: which of two
#: boxes comes first, say.
_STEPS = 64
#: A comparison that accepts more than that says little, and others are tried.
_CLEAR = 0.01
#: Example inputs that are tried where those before did not determine the outputs.
_DRAWS = 5

Arrays = Sequence[NDArray[Any]]
#: Outputs by the index of a signature and its inputs.
Run = Callable[[int, Arrays], list[NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """`inputs` that were compared at, and what the source framework makes of them (`expected`), for
    each signature. `difference` is the worst of all, `tolerance` what may be accepted. Where it is
    not `ordered`, the numbers of each output were compared by size, wherever they stand."""

    inputs: tuple[Arrays, ...]
    expected: tuple[list[NDArray[Any]], ...]
    difference: float
    tolerance: float
    ordered: bool = True

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


def agreement(inputs: Sequence[Arrays], float_type: str, reference: Run, module: Run) -> Agreement:
    """Compare a module with its source framework at example inputs, given for each signature.

    At some inputs a network may be chaotic: their last bits decide what comes out, in the source
    framework too. Other inputs of the same numbers are tried then. A detector that sorts hundreds
    of boxes by nearly equal scores is so at all inputs: the order of what it finds is left out.
    """
    from tunefleet.compiler.graph.sensitivity import nudged, shuffled

    tries: list[Agreement] = []
    for draw, ordered in (*((draw, True) for draw in range(_DRAWS)), (0, False)):
        if not ordered and any(each.holds for each in tries):
            break
        tried = tuple(shuffled(each, draw) if draw else each for each in inputs)
        expected = tuple(reference(i, each) for i, each in enumerate(tried))
        difference = largest_difference(expected, module, tried, ordered=ordered)
        outcome = Agreement(tried, expected, difference, TOLERANCE, ordered)
        if outcome.holds:
            return outcome
        once, often = ([nudged(each, float_type, n) for each in tried] for n in (1, _STEPS))
        own = largest_difference(expected, reference, once, ordered=ordered)
        outcome = Agreement(tried, expected, difference, accepted_difference(own), ordered)
        if outcome.holds and outcome.tolerance <= _CLEAR:
            return outcome
        tries.append(outcome)
        moved = largest_difference(expected, reference, often, ordered=ordered)
        if not outcome.holds and max(_TIMES_OWN * own, moved) <= _MOST_TOLERANCE:
            return outcome
    return min(tries, key=lambda each: (not each.holds, each.tolerance))


def accepted_difference(own: float) -> float:
    """What may lie between two right implementations, by how far the outputs of one move when the
    last bit of its inputs does."""
    return min(max(TOLERANCE, _TIMES_OWN * own), _MOST_TOLERANCE)


def largest_difference(
    expected: Sequence[list[NDArray[Any]]],
    run: Run,
    inputs: Sequence[Arrays],
    *,
    ordered: bool,
) -> float:
    """The worst difference of what `run` makes of inputs from what is expected, of all signatures;
    see `executable.worst_difference`."""
    from tunefleet.compiler.code.executable import worst_difference

    both = zip(expected, inputs, strict=True)
    return max(
        worst_difference(each, run(i, of), ordered=ordered) for i, (each, of) in enumerate(both)
    )
