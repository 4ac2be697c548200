"""Numerical precision of a network, and the accuracy lost by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLOAT16, FLOAT32, FLOAT64, INT8 = "float16", "float32", "float64", "int8"
FP16, BF16 = "fp16", "bf16"
#: The user's choices. float32 leaves the network unchanged. fp16 and bf16 round the operands of
#: products and accumulate in float32.
PRECISIONS = (FLOAT32, FP16, BF16, INT8)
#: Those choices by the type to which they round.
FLOATS = {FP16: FLOAT16, BF16: "bfloat16"}
LARGEST_FLOAT16 = 65504

#: Display name of each precision.
NUMBERS = {INT8: "8-bit integers", BF16: "bfloat16"}

#: Precision by TVM's tensor types. bfloat16 is stored as its bits in uint16.
_OF_TYPE = {
    "int8": INT8,
    "uint8": INT8,
    "uint16": BF16,
    "bfloat16": BF16,
    **{name: name for name in (FLOAT16, FLOAT32, FLOAT64)},
}
#: Two tensors of one of these types decide: scales, biases and sums have wider types.
_NARROW = (INT8, BF16, FLOAT16)


def precision_of(types: Sequence[str]) -> str:
    """The precision of a program, derived from the types of the tensors that it reads.

    A single narrow tensor does not decide: 8-bit weights with float32 data are computed as floats.
    The default is float32.
    """
    precisions = [_OF_TYPE[name] for name in types if name in _OF_TYPE]
    if len(set(precisions)) == 1:
        return precisions[0]
    for narrow in _NARROW:
        if precisions.count(narrow) > 1:
            return narrow
    return FLOAT64 if FLOAT64 in precisions else FLOAT32


#: A larger relative error of an output, or a smaller share of rows with an unchanged class, is a
#: large loss.
_MUCH, _FEW = 0.25, 0.9


@dataclass(frozen=True, slots=True)
class OutputLoss:
    """Difference between one output of a quantised network and that of the original network.

    `relative_error` is the root mean square of the differences, relative to that of the output.
    `top1` is the share of rows whose largest element keeps its index, None if the output does not
    look like class scores.
    """

    name: str
    relative_error: float
    top1: float | None = None

    @property
    def is_large(self) -> bool:
        """Whether the loss is large enough for a warning."""
        return self.relative_error > _MUCH or (self.top1 is not None and self.top1 < _FEW)

    def __str__(self) -> str:
        error = f"{self.name} by {self.relative_error:.1%}"
        return error if self.top1 is None else f"{error}, the same class in {self.top1:.1%}"


@dataclass(frozen=True, slots=True)
class Precision:
    """Precision of a network that tunefleet quantised: by which `quantizer`, and the loss on the
    `samples` that it was calibrated with."""

    name: str
    quantizer: str
    samples: int
    losses: tuple[OutputLoss, ...] = ()

    @property
    def lost(self) -> float:
        """The largest relative error of an output."""
        return max((loss.relative_error for loss in self.losses), default=0.0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the loss, if it is large."""
        large = [str(loss) for loss in self.losses if loss.is_large]
        if not large:
            return ()
        return (
            f"{self.name} changes the outputs much, even on its calibration inputs: "
            f"{'; '.join(large)}; calibrate with realistic inputs, or choose {BF16}",
        )

    def __str__(self) -> str:
        losses = "; ".join(map(str, self.losses))
        return (
            f"{self.name} by {self.quantizer}: on the {self.samples} calibration inputs its "
            f"outputs differ from those in {FLOAT32}: {losses}"
        )
