"""What tests of the emulated GPU run in processes of their own, by TVM's CUDA runtime."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from tunefleet.compiler.code.build import compile_module
from tunefleet.compiler.space.spaces import plainly_scheduled
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import parse_target
from tunefleet.core.trial import Built

tvm = load_tvm()
te = tvm.te


def attributes() -> dict[str, Any]:
    device = tvm.cuda(0)
    return {
        "exist": device.exist,
        "name": device.device_name,
        "compute": device.compute_version,
        "warp": device.warp_size,
        "threads": device.max_threads_per_block,
        "multiprocessors": device.multi_processor_count,
        "clock_khz": device.max_clock_rate,
        "l2": device.l2_cache_size_bytes,
        "memory": device.total_global_memory,
        "free": device.available_global_memory,
    }


def existing() -> list[bool]:
    """Of the first three devices."""
    return [bool(tvm.cuda(number).exist) for number in range(3)]


def product_error(rows: int, columns: int, depth: int) -> float:
    """The largest difference of a product on the GPU from NumPy's."""
    main, _, arguments, expected = _product(rows, columns, depth)
    main(*arguments)
    return float(np.abs(arguments[-1].numpy() - expected).max())


def _product(rows: int, columns: int, depth: int) -> tuple[Any, Any, list[Any], Any]:
    """The function of a compiled product, its module, its arguments on the GPU and NumPy's
    result."""
    a = te.placeholder((rows, depth), name="A")
    b = te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    module = compiled([a, b, c])
    draw = np.random.default_rng(0)
    x, y = (
        draw.standard_normal(size).astype("float32") for size in ((rows, depth), (depth, columns))
    )
    arguments = [on_gpu(x), on_gpu(y), on_gpu(np.zeros((rows, columns), "float32"))]
    return module["main"], module, arguments, x @ y


def compiled(tensors: list[Any]) -> Any:
    """The loaded module of a task with the plain schedule for GPUs."""
    target = parse_target("cuda/sm_80")
    function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    module = plainly_scheduled(tvm.IRModule({"main": function}), target)
    with tempfile.TemporaryDirectory() as folder:
        built = compile_module(module, target, "program", folder)
        assert isinstance(built, Built), built
        return tvm.runtime.load_module(built.path)


def on_gpu(array: Any) -> Any:
    return tvm.runtime.tensor(array, tvm.cuda(0))
