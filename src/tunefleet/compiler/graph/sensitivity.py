"""How exactly a network's outputs are determined by its inputs at all.

A network that ends in a sigmoid near 0, or that computes in half precision, has outputs whose last
digits are rounding. Two right implementations differ there, and so does one of them from itself
when its inputs move by their last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

#: Relative distance of neighbouring numbers, by type.
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_COARSEST = ("bfloat16", "float16", "float32")


def coarsest_type(mod: Any, rounded_to: str = "float32") -> str:
    """The float type of fewest digits that a Relax module computes in, whose products are rounded
    to a type: a type's name."""
    types = {rounded_to}

    def visit(node: Any) -> None:
        ty = node.ty if isinstance(node, relax.Expr) else None
        if isinstance(ty, relax.TensorType):
            types.add(str(ty.dtype))

    relax.analysis.post_order_visit(mod["main"], visit)
    return next((name for name in _COARSEST if name in types), "float32")


def nudged(inputs: Sequence[NDArray[Any]], float_type: str, steps: int = 1) -> list[NDArray[Any]]:
    """Each float moved by so many steps of the last bit that `float_type` has, up or down; integers
    as they are, and the largest floats, which masks are made of."""
    generator = np.random.default_rng(0)
    moved = []
    for array in inputs:
        if array.dtype.kind != "f":
            moved.append(array)
            continue
        epsilon = steps * max(_EPSILON[float_type], float(np.finfo(array.dtype).eps))
        signs = generator.choice((-epsilon, epsilon), size=array.shape)
        with np.errstate(over="ignore"):
            other = (array * (1.0 + signs)).astype(array.dtype)
        moved.append(np.where(np.isfinite(other), other, array))
    return moved


def shuffled(inputs: Sequence[NDArray[Any]], seed: int) -> list[NDArray[Any]]:
    """The numbers of each float input in another order; integers, which may be places or words, as
    they are."""
    generator = np.random.default_rng(seed)
    return [
        generator.permutation(a.ravel()).reshape(a.shape) if a.dtype.kind == "f" else a
        for a in inputs
    ]
