"""TVM's passes from a scheduled program to LLVM, with sums on the stack.

TVM allocates what is larger than a kilobyte by a call, and LLVM cannot know that the memory is
nobody else's: it then keeps the sums of a register tile in memory, as soon as anything in the loop
may read there. A register tile of AVX-512 is up to two kilobytes.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi

from tunefleet.compiler.toolchain.loading import load_tvm
from tunefleet.core.target import CudaTarget, Target

tvm = load_tvm()
tirx = tvm.tirx

#: The registers of AVX-512.
_MOST_BYTES = 32 * 64
#: Of an allocation: it stays as it is, which is on the stack.
_ON_STACK = "disable_lower_builtin"

_DEFAULT, _OURS = "default", "tunefleet"


def pipeline_for(target: Target) -> str:
    """The name of a target's passes, as `tvm.tirx.build` takes it."""
    return _DEFAULT if isinstance(target, CudaTarget) else _OURS


def _pipeline() -> Any:
    passes, _, of_devices = tvm.s_tir.pipeline.default_s_tir_pipeline()
    return passes, _of_host, of_devices


def _of_host() -> Any:
    on_stack = tirx.transform.prim_func_pass(_with_sums_on_stack, opt_level=0)
    lowering = tirx.transform.LowerTVMBuiltin(), tirx.transform.LowerIntrin()
    return tvm.transform.Sequential([on_stack, *lowering])


def _with_sums_on_stack(function: Any, module: Any, context: Any) -> Any:
    def placed(allocation: Any) -> Any:
        if not 0 < _bytes_of(allocation.buffer) <= _MOST_BYTES:
            return allocation
        on_stack = {_ON_STACK: tirx.IntImm("bool", 1)}
        return tirx.AllocBuffer(allocation.buffer, {**dict(allocation.annotations), **on_stack})

    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.AllocBuffer, placed)]))


def _bytes_of(buffer: Any) -> int:
    """0 where the size is not known."""
    dtype = tvm.DataType(str(buffer.dtype))
    count = 1
    for extent in buffer.shape:
        count *= int(extent) if isinstance(extent, tirx.IntImm) else 0
    return count * int(dtype.bits) * int(dtype.lanes) // 8


tirx.compilation_pipeline.register_tir_pipeline(_OURS, _pipeline)
