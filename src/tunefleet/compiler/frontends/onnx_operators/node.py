"""What a conversion is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node with its inputs already converted.

    `inputs` are Relax expressions, None for optional ones that are left out (those after the last
    one given are not there at all: use `input`). `attrs` are Python values: numbers, `str`, lists,
    NumPy arrays for tensors, GraphProto for graphs. `opset` is the version of the node's domain.
    `outputs` are the names of its outputs, "" for those that nobody wants.
    """

    operator: str
    domain: str
    name: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any]
    outputs: tuple[str, ...]
    opset: int
    builder: Any

    def input(self, index: int) -> Any:
        """The input's expression, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def emit(self, expr: Any) -> Any:
        """Binds `expr` to a variable, so that it is computed once."""
        return self.builder.emit(expr)


#: Returns one expression for each output, or the only one; None for an output nobody wants. Raises
#: NotImplementedError for a form that it does not convert.
Rule = Callable[[Node], Any | Sequence[Any]]
