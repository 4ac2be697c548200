"""Sums of a register tile lie on the stack.

TVM allocates what is larger than a kilobyte by a call, and LLVM cannot know that the memory is
nobody else's: it then keeps sums in memory as soon as anything in their loop may read there, as a
prefetch does. A register tile of AVX-512 is up to two kilobytes.
"""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain.last_passes import finish_with

#: The registers of AVX-512.
_MOST_BYTES = 32 * 64
#: Of an allocation: it stays as it is, which is on the stack.
_ON_STACK = "disable_lower_builtin"


def use_stack() -> None:
    """From here on, code that this process makes for a processor has small buffers on the stack.
    Call once per process, after TVM was imported."""
    import tvm_ffi
    from tvm import tirx

    def on_stack(allocation: Any) -> Any:
        if not 0 < _bytes_of(allocation.buffer) <= _MOST_BYTES:
            return allocation
        annotations = {**dict(allocation.annotations), _ON_STACK: tirx.IntImm("bool", 1)}
        return tirx.AllocBuffer(allocation.buffer, annotations)

    def rewritten(function: Any, _module: Any, _context: Any) -> Any:
        if _starts_kernels(function):
            return function
        rules = [(tirx.AllocBuffer, on_stack)]
        return function.with_body(tvm_ffi.structural_map(function.body, rules))

    finish_with(tirx.transform.prim_func_pass(rewritten, opt_level=0, name="SumsOnStack"))


def _starts_kernels(function: Any) -> bool:
    """Whether a function allocates a GPU's memory: what one of its kernels leaves to the next."""
    import tvm
    import tvm_ffi
    from tvm import tirx

    devices = []

    def note(statement: Any) -> None:
        if statement.attr_key == "device_type":
            devices.append(int(statement.value))

    tvm_ffi.structural_walk(function.body, [(tirx.AttrStmt, note)])
    return any(device != tvm.cpu().dlpack_device_type() for device in devices)


def _bytes_of(buffer: Any) -> int:
    """0 where the size is not known."""
    import tvm

    dtype = tvm.DataType(str(buffer.dtype))
    count = 1
    for extent in buffer.shape:
        count *= int(extent) if isinstance(extent, tvm.tirx.IntImm) else 0
    return count * int(dtype.bits) * int(dtype.lanes) // 8
