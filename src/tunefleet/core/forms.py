"""What a schedule applies to: the form of the task's program, and the tensor intrinsic."""

from __future__ import annotations

import re

#: A block that only the Winograd form of a program has; its schedules contain this name.
WINOGRAD_BLOCK = "winograd_products"

#: Between the name of a product and the height of the register tiles that its rows are divided
#: into, in the name of its block, and before the values of the vectors that its columns are.
_TILED, _VECTORS = "_in_tiles_of_", "_by_"
_TILE = re.compile(rf'{_TILED}(\d+)(?:{_VECTORS}(\d+))?"')

#: The annotation of a product's block with its register tile, rows and columns: what a cost model
#: sees of it.
REGISTER_TILE = "tunefleet.register_tile"
#: The same of a depthwise convolution: vectors of channels, and taps of the window.
DEPTHWISE_TILE = "tunefleet.depthwise_tile"

#: Prefix of the names of tensor intrinsics in traces.
INTRINSIC_PREFIX = "tunefleet."
_TENSORIZE = re.compile(rf'\["Tensorize",\s*\[[^\]]*\],\s*\["{re.escape(INTRINSIC_PREFIX)}([^"]+)"')


def is_winograd(trace: str) -> bool:
    """Whether a trace schedules the Winograd form, which needs fewer multiplications than the
    task's FLOPs count."""
    return f'"{WINOGRAD_BLOCK}' in trace


def tiled_block(product: str, height: int, lanes: int = 0) -> str:
    """The name of the block of a product whose rows are in register tiles, and its columns in
    vectors that do not divide them, if `lanes` are given."""
    return f"{product}{_TILED}{height}" + (f"{_VECTORS}{lanes}" if lanes else "")


def tile_of(trace: str) -> tuple[int, int]:
    """The height in rows of the register tile of a trace with padded rows, and the values of the
    vectors of its columns, 0 where these are divided exactly; (0, 0) for other traces."""
    match = _TILE.search(trace)
    return (int(match.group(1)), int(match.group(2) or 0)) if match else (0, 0)


def is_tiled(block: str) -> bool:
    """Whether a block's name is that of a product in register tiles, or of a part of one."""
    return _TILED in block


def tile_height(trace: str) -> int:
    """The height of `tile_of`."""
    return tile_of(trace)[0]


def is_depthwise(trace: str) -> bool:
    """Whether a trace is a depthwise convolution in register tiles."""
    return f'"{DEPTHWISE_TILE}"' in trace


#: How the names of intrinsics with tile registers begin.
_TILE_REGISTERS = "amx."

#: A kind of programs, the last one without register tiles of a designed size (`kind_of`).
WINOGRAD = 1


def kind_of(trace: str) -> int:
    """The kind of a program, of which a task has several: 0 for MetaSchedule's tilings,
    `WINOGRAD` for those of that form, 2 more for register tiles of a designed size in either, 4 for
    those of depthwise convolutions, 8 for tile registers (AMX)."""
    tiled = 2 * bool(tile_height(trace)) + 4 * is_depthwise(trace)
    return tiled + is_winograd(trace) + 8 * intrinsic_of(trace).startswith(_TILE_REGISTERS)


def has_peak_of_floats(trace: str) -> bool:
    """Whether a program's FLOPs per second are comparable with the device's float32 peak. They are
    not for Winograd, which executes fewer FLOPs than the task counts, nor for tensor instructions,
    which exceed that peak."""
    return not is_winograd(trace) and not intrinsic_of(trace)


def intrinsic_of(trace: str) -> str:
    """The tunefleet tensor intrinsic that a trace uses; empty for a plain program."""
    match = _TENSORIZE.search(trace)
    return match.group(1) if match else ""
