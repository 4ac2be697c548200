"""What a tensor intrinsic is to a search space: its shape, its types, what it needs, its code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tunefleet.compiler.toolchain.bfloat16 import stored, widened
from tunefleet.core.forms import INTRINSIC_PREFIX


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """What all kinds have: sums of products of data and packed weights, `lanes` side by side, of
    `depth` numbers of each."""

    name: str
    machine: str
    #: By LLVM's names; all of them are needed.
    features: frozenset[str]
    lanes: int
    depth: int
    #: Types of data, weights and sums; those of their buffers are `stored`.
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

    `update` makes the code: what the sums become, of the intrinsic and of the loaded data (depth),
    weights (lanes * depth) and sums (lanes).
    """

    #: Vector registers of the machine: sums, weights and a data vector are to stay in them.
    registers: int
    update: Callable[[VectorIntrinsic, Any, Any, Any], Any]
    #: Functions that the code calls, as text of LLVM's; empty where it calls none.
    llvm: str = ""
    #: Whether numbers are made wider before they are multiplied, which takes most of the gain.
    widens: bool = False


def description(intrinsic: VectorIntrinsic) -> Any:
    """What the intrinsic computes, as loops: the form that a block must have to be replaced by it.

    Reads in the order in which TVM's own operators have them.
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
    """A call of an intrinsic of LLVM's without effects."""
    from tvm import tirx

    return tirx.call_llvm_pure_intrin(dtype, name, *arguments)


def everywhere(data: Any, dtype: str, lanes: int) -> Any:
    """The bytes of a data vector, which are those of one int32, in every lane, as numbers of
    `dtype`."""
    from tvm import tirx

    return tirx.reinterpret(dtype, tirx.Broadcast(tirx.reinterpret("int32", data), lanes))
