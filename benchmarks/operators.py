"""Writes docs/operators.md: which operators of each framework are compiled."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tunefleet.compiler.frontends.coverage import (
    Operator,
    OperatorSupport,
    onnx_operators,
    tflite_operators,
    torch_operators,
)

_PAGE = Path(__file__).parent.parent / "docs" / "operators.md"
_INTRODUCTION = """# Operators

Written by `python benchmarks/operators.py --write docs/operators.md` from the tables that imports
go by. An operator that is compiled may have forms that are not, such as shapes that depend on
values: `tunefleet tasks NETWORK` says which nodes of a network stay in its source framework, and
why. They run there inside the same artifact. Of TFLite nothing can stay.

## What is not a number (NaN)

It goes through arithmetic, activations, `relu`, `clamp` and the maximum or minimum of two tensors
as in PyTorch and ONNX Runtime. It is left out where it would take instructions that every network
pays for:

- The largest or smallest number of an axis, its place (`max`, `amin`, `argmax`) and maximum pooling
  leave it out, where PyTorch gives it; in ONNX Runtime it depends on where it stands. On 64-bit ARM
  processors, which have an instruction for it, all but `argmax` and `argmin` let it through.
- On x86 processors without AVX and on NVIDIA GPUs `relu` and `clamp` give a limit in its place.

Sorts and `TopK` have it as the greatest, as PyTorch and NumPy do. ONNX Runtime's `TopK` compares it
like a number: where it comes, and what else is left out, depends on how long a row is.

TVM simplifies programs as if every number were finite. `x * 0` and `0 / x` are 0 and `x == x` is
true for any `x`; where operators are fused, `x - x` is 0 and `x + 1 - x` is 1. `x != x` still finds
what is not a number.
"""

_FRAMEWORKS: tuple[tuple[str, str, Callable[[], Iterator[Operator]]], ...] = (
    (
        "ONNX",
        "The newest opset of `ai.onnx`, and operators of ONNX Runtime's own that exporters write. "
        "Functions of a file are inlined first, and what is constant is folded.",
        onnx_operators,
    ),
    (
        "PyTorch",
        "ATen's core, and other operators of `.pt2` files that are known. What is not among them "
        "is written out by torch's decompositions, or stays in PyTorch.",
        torch_operators,
    ),
    ("TFLite", "Builtin operators, of networks in floating point.", tflite_operators),
)


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *(_section(*each) for each in _FRAMEWORKS)])


def _section(title: str, text: str, operators: Callable[[], Iterator[Operator]]) -> str:
    found = list(operators())
    counts = Counter(operator.support for operator in found)
    lines = [f"## {title}", "", text, "", "| | operators |", "|---|---|"]
    lines += [
        f"| {support.value} | {counts[support]} |" for support in OperatorSupport if counts[support]
    ]
    for support in OperatorSupport:
        if counts[support]:
            lines += ["", f"### {title}: {support.value}", ""]
            lines += _listed([operator for operator in found if operator.support is support])
    return "\n".join(lines) + "\n"


def _listed(operators: list[Operator]) -> list[str]:
    """A line for each note, with the operators that it is said of."""
    groups: dict[str, list[str]] = {}
    for operator in operators:
        groups.setdefault(operator.note, []).append(f"`{operator.name}`")
    return [
        f"- {note}: {', '.join(names)}" if note else f"{', '.join(names)}"
        for note, names in groups.items()
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", type=Path, metavar="FILE", help="write the page to this file")
    given = options.parse_args()
    if given.write is None:
        print(page())
    else:
        given.write.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
