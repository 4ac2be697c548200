"""Tensor intrinsics of 64-bit ARM: dot products of bytes, and exact ones of NEON without them.

Data are four bytes that every lane reads; where possible LLVM uses a lane of a loaded vector
(`sdot v0.4s, v1.16b, v2.4b[i]`).
"""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.space.intrinsics._base import VectorIntrinsic, called, everywhere
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx

_MACHINE, _REGISTERS = "aarch64", 32
_LANES, _DEPTH = 4, 4
_SUMS, _BYTES = "int32x4", 16


def _dot(intrinsic: VectorIntrinsic, a: Any, b: Any, c: Any) -> Any:
    """`sdot`: both sides signed."""
    data = everywhere(a, f"int8x{_BYTES}", _LANES)
    return called("llvm.aarch64.neon.sdot.v4i32.v16i8", _SUMS, c, b, data)


def _mixed_dot(intrinsic: VectorIntrinsic, a: Any, b: Any, c: Any) -> Any:
    """`usdot`: unsigned data times signed weights."""
    data = everywhere(a, f"uint8x{_BYTES}", _LANES)
    return called("llvm.aarch64.neon.usdot.v4i32.v16i8", _SUMS, c, data, b)


def _widened(intrinsic: VectorIntrinsic, a: Any, b: Any, c: Any) -> Any:
    """Products in 16 bits, which fit any product of two bytes, summed by pairs in 32 bits."""
    data, weights = everywhere(a, _SUMS, _LANES), tirx.reinterpret(_SUMS, b)
    return tirx.call_extern(_SUMS, _name(intrinsic.data), c, data, weights)


def _name(data: str) -> str:
    return f"tunefleet_neon_{data}"


def _code(data: str) -> str:
    """The IR function of `_widened`: TVM has no operation for pairwise sums."""
    pairs, sums = "llvm.aarch64.neon.saddlp.v4i32.v8i16", "llvm.aarch64.neon.addp.v4i32"
    extended = "zext" if data == "uint8" else "sext"
    halves = [", ".join(f"i32 {i}" for i in range(first, first + 8)) for first in (0, 8)]
    return (
        f"declare <4 x i32> @{pairs}(<8 x i16>)\n"
        f"declare <4 x i32> @{sums}(<4 x i32>, <4 x i32>)\n"
        f"define <4 x i32> @{_name(data)}(<4 x i32> %c, <4 x i32> %a, <4 x i32> %b) {{\n"
        f"  %x = bitcast <4 x i32> %a to <16 x i8>\n"
        f"  %y = bitcast <4 x i32> %b to <16 x i8>\n"
        f"  %u = {extended} <16 x i8> %x to <16 x i16>\n"
        f"  %v = sext <16 x i8> %y to <16 x i16>\n"
        f"  %p = mul <16 x i16> %u, %v\n"
        f"  %l = shufflevector <16 x i16> %p, <16 x i16> poison, <8 x i32> <{halves[0]}>\n"
        f"  %h = shufflevector <16 x i16> %p, <16 x i16> poison, <8 x i32> <{halves[1]}>\n"
        f"  %s = call <4 x i32> @{pairs}(<8 x i16> %l)\n"
        f"  %t = call <4 x i32> @{pairs}(<8 x i16> %h)\n"
        f"  %q = call <4 x i32> @{sums}(<4 x i32> %s, <4 x i32> %t)\n"
        f"  %z = add <4 x i32> %c, %q\n"
        f"  ret <4 x i32> %z\n"
        f"}}\n"
    )


def _intrinsic(name: str, feature: str, data: str, update: Any, llvm: str = "") -> VectorIntrinsic:
    return VectorIntrinsic(
        name, _MACHINE, frozenset({feature}), _LANES, _DEPTH, data, "int8", "int32", _REGISTERS,
        update, llvm, widens=bool(llvm),
    )  # fmt: skip


INTRINSICS = (
    _intrinsic("sdot.4x4", "dotprod", "int8", _dot),
    _intrinsic("i8mm.usdot.4x4", "i8mm", "uint8", _mixed_dot),
    *(
        _intrinsic(f"neon.{data}.4x4", "neon", data, _widened, _code(data))
        for data in ("int8", "uint8")
    ),
)
