"""The registry of tensor intrinsics, and their selection by target."""

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
#: All tensor-core products.
WARP_PRODUCTS: tuple[WarpProduct, ...] = wmma.INTRINSICS
_PLAINEST = {"x86_64": "x86-64", "aarch64": "generic"}
_BY_NAME = {i.trace_name: i for i in INTRINSICS if isinstance(i, VectorIntrinsic)}
_WARP_PRODUCT = {name: each for each in WARP_PRODUCTS for name in each.trace_names}


@lru_cache(maxsize=64)
def intrinsics_of(target: CpuTarget) -> tuple[Intrinsic, ...]:
    """The intrinsics for a target, best first: by instruction, then by width."""
    return tuple(intrinsic for intrinsic in INTRINSICS if runs_on(intrinsic, target))


def warp_products_of(target: CudaTarget) -> tuple[WarpProduct, ...]:
    """The tensor-core products for a GPU."""
    return tuple(each for each in WARP_PRODUCTS if each.capability <= target.capability)


def has_intrinsics(target: Target) -> bool:
    """Whether there is any intrinsic for a target."""
    if isinstance(target, CudaTarget):
        return bool(warp_products_of(target))
    return bool(intrinsics_of(target.cpu))


@cache
def dot_products() -> tuple[VectorIntrinsic, ...]:
    """x86 instructions that multiply unsigned by signed bytes: the widest per set of required
    features."""
    widest: dict[frozenset[str], VectorIntrinsic] = {}
    for each in x86.INTRINSICS:
        if (each.data, each.weight, each.widens) == ("uint8", "int8", False):
            widest.setdefault(each.features, each)
    return tuple(widest.values())


def least_target(intrinsic: Intrinsic) -> CpuTarget:
    """A single-threaded target of the minimum processor with an intrinsic."""
    foreign = intrinsic.machine != machine_of(native_target(1))
    return CpuTarget(
        _PLAINEST[intrinsic.machine],
        1,
        tuple(f"+{feature}" for feature in intrinsic.features),
        f"{intrinsic.machine}-linux-gnu" if foreign else "",
    )


def runs_on(intrinsic: Intrinsic, target: CpuTarget) -> bool:
    return intrinsic.machine == machine_of(target) and intrinsic.features <= llvm_features(target)


#: By precision: the filter of its intrinsics, and the name of their operands.
_ACCUMULATORS = {INT8: "int32", BF16: "float32"}
_MULTIPLIED = {INT8: "8-bit integers", BF16: "bfloat16"}


def remark_on(target: CpuTarget, precision: str) -> tuple[str, ...]:
    """Warnings about the speed of products in a precision on a target; empty if they are fast."""
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
    """The intrinsic or register tile of a name in a trace. Raises KeyError for other names."""
    tiles = tiles_named(trace_name.removeprefix(INTRINSIC_PREFIX))
    return _BY_NAME[trace_name] if tiles is None else tiles[0]


def warp_product_named(trace_name: str) -> WarpProduct:
    """The tensor-core product of a name in a trace. Raises KeyError for other names."""
    found = _WARP_PRODUCT[trace_name]
    if found.trace_name != trace_name:
        raise KeyError(trace_name)
    return found


@cache
def make_known(trace_name: str) -> None:
    """Register an intrinsic with TVM, once per process. Names of other packages' intrinsics are
    ignored. Raises InternalError."""
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
