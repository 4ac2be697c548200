"""Generates LLVM IR for the functions of a register tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunefleet.compiler.space.intrinsics.amx import Tiles

REGISTERS = 8
#: Bytes of a sum, and of the adjacent weights of a lane.
_SUM_BYTES = _WORD_BYTES = 4

_DECLARED = (
    "ldtilecfg(ptr)", "tilerelease()", "tilezero(i8 immarg)",
    "tileloadd64(i8 immarg, ptr, i64)", "tilestored64(i8 immarg, ptr, i64)",
)  # fmt: skip
#: Linux grants tile registers on request: arch_prctl (158) with ARCH_REQ_XCOMP_PERM (0x1023) of
#: XFEATURE_XTILEDATA (18). TVM removes IR functions that are not called, so this is module
#: assembly; loaders call the entries of .init_array.
_ALLOWED = r"""
module asm ".pushsection .text"
module asm "777: movl $158, %eax"
module asm "movl $0x1023, %edi"
module asm "movl $18, %esi"
module asm "syscall"
module asm "ret"
module asm ".popsection"
module asm ".pushsection .init_array,\22aw\22,@init_array"
module asm ".p2align 3"
module asm ".quad 777b"
module asm ".popsection"
"""


def text_of(tiles: Tiles) -> str:
    """Five functions: `begin` and `end`, which a thread calls around its part; `zero`; `step`, with
    the addresses of data and packed weights and the strides in elements between rows and between
    outer tiles; `store`, with the same for the sums."""
    sums = [(outer, column) for outer in range(tiles.outer) for column in range(tiles.columns)]
    shapes = f"{tiles.function('shapes')}"
    instruction = tiles.intrinsic.instruction
    zero = [f"call void @llvm.x86.tilezero(i8 {at})" for at in range(len(sums))]
    return "\n".join(
        (
            _ALLOWED,
            *(f"declare void @llvm.x86.{name}" for name in _DECLARED),
            f"declare void @llvm.x86.{instruction}(i8 immarg, i8 immarg, i8 immarg)",
            f'@{shapes} = private constant [64 x i8] c"{_shapes(tiles)}", align 64',
            _defined(tiles, "begin", "", [f"call void @llvm.x86.ldtilecfg(ptr @{shapes})"]),
            _defined(tiles, "end", "", ["call void @llvm.x86.tilerelease()"]),
            _defined(tiles, "zero", "", zero),
            _defined(tiles, "step", "ptr %a, i64 %row, i64 %tile, ptr %b", _step(tiles)),
            _defined(tiles, "store", "ptr %to, i64 %row, i64 %tile", _store(tiles, sums)),
        )
    )


def _defined(tiles: Tiles, what: str, parameters: str, lines: Sequence[str]) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"define i32 @{tiles.function(what)}({parameters}) {{\n{body}\n  ret i32 0\n}}"


def _registers(tiles: Tiles) -> tuple[list[int], list[int]]:
    """Registers of data and of weights: one per tile for the side with fewer tiles; the others take
    turns."""
    few, left = min(tiles.outer, tiles.columns), range(tiles.outer * tiles.columns, REGISTERS)
    kept, turns = list(left[:few]), list(left[few:])
    return (kept, turns) if tiles.outer <= tiles.columns else (turns, kept)


def _shapes(tiles: Tiles) -> str:
    """The operand of LDTILECFG: palette, bytes per row by register, rows by register."""
    data, weights = _registers(tiles)
    row_bytes, rows = bytearray(2 * 16), bytearray(16)
    for at in range(REGISTERS):
        width = tiles.words * _WORD_BYTES if at in data else tiles.lanes * _SUM_BYTES
        row_bytes[2 * at : 2 * at + 2] = width.to_bytes(2, "little")
        rows[at] = tiles.words if at in weights else tiles.rows
    return "".join(f"\\{byte:02X}" for byte in bytes([1, *[0] * 15]) + row_bytes + rows)


def _in_bytes(of: int) -> list[str]:
    return [f"%rows = mul i64 %row, {of}", f"%tiles = mul i64 %tile, {of}"]


def _store(tiles: Tiles, sums: Sequence[tuple[int, int]]) -> list[str]:
    lines = _in_bytes(_SUM_BYTES)
    for at, (outer, column) in enumerate(sums):
        lines += [
            f"%to{at} = mul i64 %tiles, {outer}",
            f"%row{at} = getelementptr i8, ptr %to, i64 %to{at}",
            f"%d{at} = getelementptr i8, ptr %row{at}, i64 {column * tiles.lanes * _SUM_BYTES}",
            f"call void @llvm.x86.tilestored64(i8 {at}, ptr %d{at}, i64 %rows)",
        ]
    return lines


def _step(tiles: Tiles) -> list[str]:
    """Load all tiles of the side with fewer, then those of the other side one by one, each with all
    its products."""
    data, weights = _registers(tiles)
    row_bytes = tiles.lanes * _WORD_BYTES

    def of_data(outer: int) -> list[str]:
        at = data[outer % len(data)]
        return [
            f"%to{outer} = mul i64 %tiles, {outer}",
            f"%a{outer} = getelementptr i8, ptr %a, i64 %to{outer}",
            f"call void @llvm.x86.tileloadd64(i8 {at}, ptr %a{outer}, i64 %rows)",
        ]

    def of_weights(column: int) -> list[str]:
        at = weights[column % len(weights)]
        return [
            f"%b{column} = getelementptr i8, ptr %b, i64 {column * tiles.words * row_bytes}",
            f"call void @llvm.x86.tileloadd64(i8 {at}, ptr %b{column}, i64 {row_bytes})",
        ]

    def product(outer: int, column: int) -> str:
        registers = (
            outer * tiles.columns + column,
            data[outer % len(data)],
            weights[column % len(weights)],
        )
        listed = ", ".join(f"i8 {at}" for at in registers)
        return f"call void @llvm.x86.{tiles.intrinsic.instruction}({listed})"

    lines = _in_bytes(_WORD_BYTES // tiles.intrinsic.word)
    if tiles.outer <= tiles.columns:
        for outer in range(tiles.outer):
            lines += of_data(outer)
        for column in range(tiles.columns):
            lines += of_weights(column)
            lines += [product(outer, column) for outer in range(tiles.outer)]
        return lines
    for column in range(tiles.columns):
        lines += of_weights(column)
    for outer in range(tiles.outer):
        lines += of_data(outer)
        lines += [product(outer, column) for column in range(tiles.columns)]
    return lines
