"""Tensor intrinsics of x86-64: dot products of VNNI and BF16, and exact ones of bytes without VNNI.

`vpmaddubsw` saturates sums of two products to 16 bits, which is wrong for real data. The forms
without VNNI widen to 16 bits instead and use `vpmaddwd`, whose sums are exact.
"""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.space.intrinsics._base import VectorIntrinsic, called, everywhere
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16

tvm = load_tvm()
tirx = tvm.tirx

#: Vector registers: 32 with AVX-512 at any width, 16 without.
_WIDE, _NARROW = 32, 16


def _vnni(intrinsic: VectorIntrinsic, a: Any, b: Any, c: Any) -> Any:
    """`vpdpbusd`: unsigned data times signed weights."""
    lanes = intrinsic.lanes
    name, sums = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", f"int32x{lanes}"
    return called(name, sums, c, everywhere(a, f"uint8x{4 * lanes}", lanes), b)


def _vnni_signed(intrinsic: VectorIntrinsic, a: Any, b: Any, c: Any) -> Any:
    """Adds 128 to signed data to make them unsigned, and corrects the sums.

    The correction is equal for all rows of data; the compiler hoists it.
    """
    lanes = intrinsic.lanes
    name, sums = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", f"int32x{lanes}"
    unsigned = f"uint8x{4 * lanes}"
    flipped = tirx.bitwise_xor(tirx.reinterpret("int32", a), tirx.const(-2139062144, "int32"))
    more = called(name, sums, c, tirx.reinterpret(unsigned, tirx.Broadcast(flipped, lanes)), b)
    zeros = tirx.Broadcast(tirx.const(0, "int32"), lanes)
    shift = tirx.Broadcast(tirx.const(128, "uint8"), 4 * lanes)
    return more - called(name, sums, zeros, shift, b)


def _bf16(intrinsic: VectorIntrinsic, a: Any, b: Any, c: Any) -> Any:
    """`vdpbf16ps`: pairs of bfloat16, summed in float32 (denormals are zero).

    TVM converts bfloat16 to float32 in all computations, also for arguments of an instruction.
    Therefore the instruction is in an LLVM IR function that takes words.
    """
    lanes = intrinsic.lanes
    words = f"int32x{lanes}"
    data, weights = everywhere(a, words, lanes), tirx.reinterpret(words, b)
    return tirx.call_extern(f"float32x{lanes}", _bf16_name(lanes), c, data, weights)


def _bf16_name(lanes: int) -> str:
    return f"tunefleet_dpbf16ps_{lanes}"


def _bf16_code(lanes: int) -> str:
    name, bits = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", f"<{2 * lanes} x bfloat>"
    sums, words = f"<{lanes} x float>", f"<{lanes} x i32>"
    return (
        f"declare {sums} @{name}({sums}, {bits}, {bits})\n"
        f"define {sums} @{_bf16_name(lanes)}({sums} %c, {words} %a, {words} %b) {{\n"
        f"  %x = bitcast {words} %a to {bits}\n"
        f"  %y = bitcast {words} %b to {bits}\n"
        f"  %z = call {sums} @{name}({sums} %c, {bits} %x, {bits} %y)\n"
        f"  ret {sums} %z\n"
        f"}}\n"
    )


_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}


def _widened(intrinsic: VectorIntrinsic, a: Any, b: Any, c: Any) -> Any:
    """`vpmaddwd` of both sides as 16-bit integers: exact for all 8-bit ones, signed or not.

    The first and third of four bytes form one pair, the second and fourth another: this needs two
    shifts, whereas unpacking neighbours would need a shuffle.
    """
    lanes = intrinsic.lanes
    sums, words = f"int32x{lanes}", f"int16x{2 * lanes}"
    products = _PAIRS[lanes]
    both = everywhere(a, words, lanes)
    data = _halves(both, lanes, signed=intrinsic.data == "int8")
    weights = _halves(tirx.reinterpret(words, b), lanes, signed=True)
    first, second = (called(products, sums, d, w) for d, w in zip(data, weights, strict=True))
    return c + (first + second)


def _halves(words: Any, lanes: int, *, signed: bool) -> tuple[Any, Any]:
    """The low and the high bytes of 16-bit integers, each as 16-bit integers."""
    eight = tirx.Broadcast(tirx.const(8, "int16"), 2 * lanes)
    if signed:
        return (words << eight) >> eight, words >> eight
    low = tirx.bitwise_and(words, tirx.Broadcast(tirx.const(255, "int16"), 2 * lanes))
    # The shift is arithmetic; mask the sign bits.
    return low, tirx.bitwise_and(
        words >> eight, tirx.Broadcast(tirx.const(255, "int16"), 2 * lanes)
    )


def _intrinsics() -> list[VectorIntrinsic]:
    vnni = frozenset({"avx512vnni", "avx512vl"})
    of_vnni = [
        ("vnni", vnni, _WIDE, (16, 8, 4)),
        # The same instruction for processors without AVX-512.
        ("avxvnni", frozenset({"avxvnni"}), _NARROW, (8, 4)),
    ]
    kinds = [("", "uint8", _vnni), (".signed", "int8", _vnni_signed)]
    made = [
        VectorIntrinsic(
            f"{name}{kind}.{lanes}x4", "x86_64", features, lanes, 4, data, "int8", "int32",
            registers, update,
        )
        for name, features, registers, widths in of_vnni
        for kind, data, update in kinds
        for lanes in widths
    ]  # fmt: skip
    made += [
        VectorIntrinsic(
            f"bf16.{lanes}x2", "x86_64", frozenset({"avx512bf16", "avx512vl"}), lanes, 2,
            BFLOAT16, BFLOAT16, "float32", _WIDE, _bf16, _bf16_code(lanes),
        )
        for lanes in (16, 8, 4)
    ]  # fmt: skip
    for data in ("uint8", "int8"):
        made.append(
            VectorIntrinsic(
                f"avx512.{data}.16x4", "x86_64", frozenset({"avx512bw"}), 16, 4, data, "int8",
                "int32", _WIDE, _widened, widens=True,
            )
        )  # fmt: skip
        made.append(
            VectorIntrinsic(
                f"avx2.{data}.8x4", "x86_64", frozenset({"avx2"}), 8, 4, data, "int8", "int32",
                _NARROW, _widened, widens=True,
            )
        )  # fmt: skip
    return made


INTRINSICS = tuple(_intrinsics())
