"""Tensor intrinsics for search spaces: shape, types, requirements and code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tunefleet.compiler.toolchain.bfloat16 import stored, widened
from tunefleet.core.forms import INTRINSIC_PREFIX


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """The common base: sums of products of data and packed weights in `lanes` adjacent lanes, over
    `depth` elements."""

    name: str
    machine: str
    #: LLVM's names of the required features.
    features: frozenset[str]
    lanes: int
    depth: int
    #: Types of data, weights and sums; their buffers have the `stored` types.
    data: str
    weight: str
    accumulator: str

    @property
    def trace_name(self) -> str:
        return INTRINSIC_PREFIX + self.name


@dataclass(frozen=True, slots=True)
class VectorIntrinsic(Intrinsic):
    """C[lanes] += sum over k of A[k] * B[lanes, k], k below `depth`: one data vector, which every
    lane reads, times packed weights.

    `update` generates the code: the new sums, from the intrinsic and the loaded data (depth),
    weights (lanes * depth) and sums (lanes).
    """

    #: The number of vector registers, which should hold sums, weights and a data vector.
    registers: int
    update: Callable[[VectorIntrinsic, Any, Any, Any], Any]
    #: LLVM IR of functions that the code calls; may be empty.
    llvm: str = ""
    #: Whether elements are widened before multiplication, which costs most of the gain.
    widens: bool = False


def description(intrinsic: VectorIntrinsic) -> Any:
    """The computation of the intrinsic as loops: the form of a block that it can replace.

    The order of reads is that of TVM's own operators.
    """
    from tvm.script import tirx as T

    lanes, depth = intrinsic.lanes, intrinsic.depth
    data, weight, accumulator = intrinsic.data, intrinsic.weight, intrinsic.accumulator

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def of(
        A: T.Buffer((depth,), stored(data), offset_factor=1),  # type: ignore[valid-type]
        B: T.Buffer((lanes, depth), stored(weight), offset_factor=1),  # type: ignore[valid-type]
        C: T.Buffer((lanes,), accumulator, offset_factor=1),  # type: ignore[valid-type]
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, depth):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + widened(A[vk], data, accumulator) * widened(
                            B[vi, vk], weight, accumulator
                        )

    return of


def coded(intrinsic: VectorIntrinsic) -> Any:
    """The code of an intrinsic, a PrimFunc with the arguments of `description`."""
    from tvm.script import tirx as T

    lanes, depth = intrinsic.lanes, intrinsic.depth
    data, weight = stored(intrinsic.data), stored(intrinsic.weight)
    accumulator, update = intrinsic.accumulator, partial(intrinsic.update, intrinsic)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def code(
        A: T.Buffer((depth,), data, offset_factor=1),  # type: ignore[valid-type]
        B: T.Buffer((lanes, depth), weight, offset_factor=1),  # type: ignore[valid-type]
        C: T.Buffer((lanes,), accumulator, offset_factor=1),  # type: ignore[valid-type]
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = update(
                A.vload([0], f"{data}x{depth}"),
                B.vload([0, 0], f"{weight}x{lanes * depth}"),
                C.vload([0], f"{accumulator}x{lanes}"),
            )

    return code


def called(name: str, dtype: str, *arguments: Any) -> Any:
    """A call of a pure LLVM intrinsic."""
    from tvm import tirx

    return tirx.call_llvm_pure_intrin(dtype, name, *arguments)


def everywhere(data: Any, dtype: str, lanes: int) -> Any:
    """The four bytes of a data vector broadcast to every lane, as elements of `dtype`."""
    from tvm import tirx

    return tirx.reinterpret(dtype, tirx.Broadcast(tirx.reinterpret("int32", data), lanes))
