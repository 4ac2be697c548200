"""Tensor intrinsics as plug-ins: which there are, and which code for a target may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from tunefleet.compiler.space.intrinsics import amx, arm, wmma, x86
from tunefleet.compiler.space.intrinsics._base import (
    Intrinsic,
    VectorIntrinsic,
    coded,
    description,
)
from tunefleet.compiler.space.intrinsics.amx import TileIntrinsic, Tiles, tiles_called, tiles_named
from tunefleet.compiler.space.intrinsics.wmma import WarpProduct
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import llvm_features, machine_of, native_target
from tunefleet.core.forms import INTRINSIC_PREFIX
from tunefleet.core.precision import BF16, INT8
from tunefleet.core.target import CpuTarget, CudaTarget, Target
from tunefleet.errors import internal

__all__ = [
    "INTRINSICS",
    "WARP_PRODUCTS",
    "Intrinsic",
    "TileIntrinsic",
    "Tiles",
    "VectorIntrinsic",
    "WarpProduct",
    "dot_products",
    "has_intrinsics",
    "intrinsic_named",
    "intrinsics_of",
    "least_target",
    "make_all_known",
    "make_known",
    "remark_on",
    "runs_on",
    "tiles_called",
    "tiles_named",
    "warp_product_named",
    "warp_products_of",
]

tvm = load_tvm()

INTRINSICS: tuple[Intrinsic, ...] = (*amx.INTRINSICS, *x86.INTRINSICS, *arm.INTRINSICS)
#: Of GPUs, all of them.
WARP_PRODUCTS: tuple[WarpProduct, ...] = wmma.INTRINSICS
_PLAINEST = {"x86_64": "x86-64", "aarch64": "generic"}
_BY_NAME = {i.trace_name: i for i in INTRINSICS if isinstance(i, VectorIntrinsic)}
_WARP_PRODUCT = {name: each for each in WARP_PRODUCTS for name in each.trace_names}


@lru_cache(maxsize=64)
def intrinsics_of(target: CpuTarget) -> tuple[Intrinsic, ...]:
    """The intrinsics that code for a target may use, better ones first: by instruction, then wider
    ones."""
    return tuple(intrinsic for intrinsic in INTRINSICS if runs_on(intrinsic, target))


def warp_products_of(target: CudaTarget) -> tuple[WarpProduct, ...]:
    """What code for a GPU may use of its tensor cores."""
    return tuple(each for each in WARP_PRODUCTS if each.capability <= target.capability)


def has_intrinsics(target: Target) -> bool:
    """Whether any is known that code for a target may use where it computes."""
    if isinstance(target, CudaTarget):
        return bool(warp_products_of(target))
    return bool(intrinsics_of(target.cpu))


@cache
def dot_products() -> tuple[VectorIntrinsic, ...]:
    """Instructions of x86 that multiply unsigned by signed bytes, and the features of each: the
    widest of those that need the same."""
    widest: dict[frozenset[str], VectorIntrinsic] = {}
    for each in x86.INTRINSICS:
        if (each.data, each.weight, each.widens) == ("uint8", "int8", False):
            widest.setdefault(each.features, each)
    return tuple(widest.values())


def least_target(intrinsic: Intrinsic) -> CpuTarget:
    """Code with one thread for the plainest processor that has an intrinsic."""
    foreign = intrinsic.machine != machine_of(native_target(1))
    return CpuTarget(
        _PLAINEST[intrinsic.machine],
        1,
        tuple(f"+{feature}" for feature in intrinsic.features),
        f"{intrinsic.machine}-linux-gnu" if foreign else "",
    )


def runs_on(intrinsic: Intrinsic, target: CpuTarget) -> bool:
    return intrinsic.machine == machine_of(target) and intrinsic.features <= llvm_features(target)


#: What tells the intrinsics of a precision, and what they multiply.
_ACCUMULATORS = {INT8: "int32", BF16: "float32"}
_MULTIPLIED = {INT8: "8-bit integers", BF16: "bfloat16"}


def remark_on(target: CpuTarget, precision: str) -> tuple[str, ...]:
    """What to expect of products in a precision on a target; nothing where they are fast."""
    sums, numbers = _ACCUMULATORS[precision], _MULTIPLIED[precision]
    fitting = [each for each in intrinsics_of(target) if each.accumulator == sums]
    if not fitting:
        return (
            f"the processor has no instruction for products of {numbers} that is known: they take "
            "as long as in float32, or longer",
        )
    if all(isinstance(each, VectorIntrinsic) and each.widens for each in fitting):
        return (
            f"the processor multiplies {numbers} as wider ones: expect products little faster than "
            "in float32",
        )
    return ()


def intrinsic_named(trace_name: str) -> VectorIntrinsic | Tiles:
    """The intrinsic that a trace calls so, or the register tile. Raises KeyError for another's."""
    tiles = tiles_named(trace_name.removeprefix(INTRINSIC_PREFIX))
    return _BY_NAME[trace_name] if tiles is None else tiles[0]


def warp_product_named(trace_name: str) -> WarpProduct:
    """The product by tensor cores that a trace calls so. Raises KeyError for another's."""
    found = _WARP_PRODUCT[trace_name]
    if found.trace_name != trace_name:
        raise KeyError(trace_name)
    return found


@cache
def make_known(trace_name: str) -> None:
    """Register an intrinsic with TVM, once a process: schedules name those that they use. Names
    that are none of ours are another's to register. Raises InternalError."""
    intrinsic = _BY_NAME.get(trace_name)
    tiles = tiles_named(trace_name.removeprefix(INTRINSIC_PREFIX))
    warp = _WARP_PRODUCT.get(trace_name)
    if intrinsic is None and tiles is None and warp is None:
        return
    try:
        if warp is not None:
            code = warp.code(trace_name)
        elif tiles is not None:
            code = tiles[0].code(tiles[1])
        elif intrinsic is not None:
            code = description(intrinsic), coded(intrinsic)
        tvm.s_tir.TensorIntrin.register(trace_name, *code, override=True)
    except Exception as error:  # no candidate is to blame that it was not taken
        raise internal(error) from error


def make_all_known(instructions: Iterable[Sequence[Any]]) -> None:
    """Register the intrinsics of a trace's instructions, [kind, inputs, attributes, outputs]."""
    for kind, _, attributes, *_ in instructions:
        if kind == "Tensorize":
            make_known(str(attributes[0]))
