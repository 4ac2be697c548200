"""In what numbers a network computes, and what that lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLOAT16, FLOAT32, FLOAT64, BF16, INT8 = "float16", "float32", "float64", "bf16", "int8"
#: What a user may ask for: float32 is a network as it is. In bf16 its products by weights are those
#: of bfloat16, with sums in float32.
PRECISIONS = (FLOAT32, BF16, INT8)

#: The numbers of each precision, in a sentence.
NUMBERS = {INT8: "8-bit integers", BF16: "bfloat16"}

#: By the types of tensors, as TVM names them. bfloat16 is kept as its bits, which are in uint16.
_OF_TYPE = {
    "int8": INT8,
    "uint8": INT8,
    "uint16": BF16,
    "bfloat16": BF16,
    **{name: name for name in (FLOAT16, FLOAT32, FLOAT64)},
}
#: Two tensors of one of these decide: scales, biases and sums are of wider types beside them.
_NARROW = (INT8, BF16, FLOAT16)


def precision_of(types: Sequence[str]) -> str:
    """In what numbers a program computes, by the types of the tensors that it reads.

    One narrow tensor beside others does not decide: weights in 8 bits beside data in float32 are
    computed as floats. Where no type tells, it is float32, in which networks are unless someone
    asks for another.
    """
    told = [_OF_TYPE[name] for name in types if name in _OF_TYPE]
    if len(set(told)) == 1:
        return told[0]
    for narrow in _NARROW:
        if told.count(narrow) > 1:
            return narrow
    return FLOAT64 if FLOAT64 in told else FLOAT32


#: More is a large error of an output, relative to its size; fewer rows of the same class a large
#: loss of classes.
_MUCH, _FEW = 0.25, 0.9


@dataclass(frozen=True, slots=True)
class OutputLoss:
    """How far one output of a quantised network is from that of the network before.

    `relative_error` is the root of the mean square of the differences, relative to that of the
    output. `top1` is the share of rows whose largest number stays where it was, None where the
    output does not look like classes.
    """

    name: str
    relative_error: float
    top1: float | None = None

    @property
    def is_large(self) -> bool:
        """Whether little of the output may be left."""
        return self.relative_error > _MUCH or (self.top1 is not None and self.top1 < _FEW)

    def __str__(self) -> str:
        error = f"{self.name} by {self.relative_error:.1%}"
        return error if self.top1 is None else f"{error}, the same class in {self.top1:.1%}"


@dataclass(frozen=True, slots=True)
class Precision:
    """A network that was quantised here: by what (`quantizer`), and what it lost on the `samples`
    that it was calibrated with."""

    name: str
    quantizer: str
    samples: int
    losses: tuple[OutputLoss, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of what was lost, if it is much."""
        large = [str(loss) for loss in self.losses if loss.is_large]
        if not large:
            return ()
        return (
            f"{self.name} changes much of the outputs, on the very inputs that it was calibrated "
            f"with: {'; '.join(large)}; calibrate with inputs as in use, or choose {BF16}",
        )

    def __str__(self) -> str:
        losses = "; ".join(map(str, self.losses))
        return (
            f"{self.name} by {self.quantizer}: on the {self.samples} calibration inputs its "
            f"outputs differ from those in {FLOAT32}: {losses}"
        )
