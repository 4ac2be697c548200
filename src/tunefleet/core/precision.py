"""In what numbers a network computes, and what that lost."""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32, BF16, INT8 = "float32", "bf16", "int8"
#: What a user may ask for: float32 is a network as it is. In bf16 its products by weights are those
#: of bfloat16, with sums in float32.
PRECISIONS = (FLOAT32, BF16, INT8)


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

    def __str__(self) -> str:
        losses = "; ".join(map(str, self.losses))
        return (
            f"{self.name} by {self.quantizer}: on the {self.samples} calibration inputs its "
            f"outputs differ from those in {FLOAT32}: {losses}"
        )
