"""What tests of the emulated GPU run in processes of their own, by TVM's CUDA runtime."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.compiler.code.build import compile_module, lowering
from tunefleet.compiler.code.executable import (
    CompiledNetwork,
    compile_network,
    run_compiled,
    save_network,
)
from tunefleet.compiler.graph.tasks import normalized
from tunefleet.compiler.graph.weights import Lifted
from tunefleet.compiler.space.spaces import plainly_scheduled
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import native_target, parse_target, to_tvm
from tunefleet.core.trial import Built

tvm = load_tvm()
relax, te = tvm.relax, tvm.te

TARGET = parse_target("cuda/sm_80")
#: Kernels by name: what each thread of two blocks of 32 does, of x (64 floats) and y.
_KERNELS = {
    "fair": "y[b * 32 + t] = x[b * 32 + t]",
    "racing": "y[0] = x[b * 32 + t]",
    "outside": "y[b * 32 + t] = x[b * 32 + t + 4096]",
    "endless": "while x[0] < T.float32(1):\n    y[b * 32 + t] = x[b * 32 + t]",
}
_KERNEL = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding({threads}, thread="threadIdx.x"):
            with T.sblock("all"):
                {body}
"""
_SHARED = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for t in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("all"):
            kept = T.sblock_alloc_buffer(({step} * 64,), "float32", scope="{scope}")
            with T.sblock("write"):
                kept[t * {step}] = x[t]
            with T.sblock("read"):
                y[63 - t] = kept[t * {step}]
"""


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
    module, arguments, expected = _product(rows, columns, depth)
    module["main"](*arguments)
    return float(np.abs(arguments[-1].numpy() - expected).max())


def library_has_source() -> bool:
    """Whether a library that was built where a driver is still has to be compiled."""
    with tempfile.TemporaryDirectory() as folder:
        built, *_ = _built_product(8, 8, 8, folder)
        return b"__global__" in Path(built.path).read_bytes()


def small_float_error(dtype: str) -> float:
    """Of products and quotients of 16-bit floats on the GPU, each rounded, from NumPy's."""
    x, y = (te.placeholder((64,), "float32", name) for name in "xy")

    def element(i: Any) -> Any:
        a, b = x[i].astype(dtype), y[i].astype(dtype)
        return (a * b / (b * b)).astype("float32")

    function = te.create_prim_func([x, y, te.compute((64,), element, "z")])
    function = function.with_attr("global_symbol", "main")
    module = _loaded(plainly_scheduled(tvm.IRModule({"main": function}), TARGET))
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(64).astype("float32") for _ in range(3)]
    tensors = [on_gpu(array) for array in arrays]
    module["main"](*tensors)
    a, b = (array.astype(np.dtype(dtype)) for array in arrays[:2])
    return float(np.abs(tensors[-1].numpy() - (a * b / (b * b)).astype("float32")).max())


def timed_product() -> list[float]:
    """Seconds by events on the stream."""
    module, arguments, _ = _product(8, 8, 8)
    timer = module.time_evaluator("main", tvm.cuda(0), number=2, repeat=3)
    return [float(second) for second in timer(*arguments).results]


def _product(rows: int, columns: int, depth: int) -> tuple[Any, list[Any], Any]:
    """A compiled product, its arguments on the GPU and NumPy's result."""
    with tempfile.TemporaryDirectory() as folder:
        built, arrays, expected = _built_product(rows, columns, depth, folder)
        return tvm.runtime.load_module(built.path), [*map(on_gpu, arrays)], expected


def _built_product(
    rows: int, columns: int, depth: int, folder: str
) -> tuple[Built, list[Any], Any]:
    a = te.placeholder((rows, depth), name="A")
    b = te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    module = plainly_scheduled(tvm.IRModule({"main": function}), TARGET)
    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, depth)).astype("float32")
    y = draw.standard_normal((depth, columns)).astype("float32")
    return _built(module, folder), [x, y, np.zeros((rows, columns), "float32")], x @ y


def kernel_result(name: str, threads: int = 32) -> list[float]:
    """The last numbers that a kernel of `_KERNELS` wrote."""
    body = _KERNELS[name].replace("\n", "\n" + " " * 16)
    return _run(_KERNEL.format(threads=threads, body=body))


def shared_result(kib: int, scope: str) -> list[float]:
    """Of a kernel whose blocks have almost so much shared memory."""
    return _run(_SHARED.format(step=kib * 4, scope=scope))


def _run(script: str) -> list[float]:
    module = _loaded(tvm.IRModule({"main": tvm.script.from_source(script)}))
    x, y = on_gpu(np.arange(64, dtype="float32")), on_gpu(np.zeros(64, "float32"))
    # Where the kernel fails they must not be freed: TVM then ends the process.
    _kept.extend([x, y])
    module["main"](x, y)
    tvm.cuda(0).sync()
    return [float(number) for number in y.numpy()[-2:]]


_kept: list[Any] = []


def errors_after(name: str) -> list[str]:
    """What each of several calls says after a kernel that does something wrong."""
    calls = [
        lambda: kernel_result(name),
        lambda: tvm.cuda(0).sync(),
        lambda: _kept[0].numpy(),
        lambda: on_gpu(np.zeros(64, "float32")),
    ]
    return [_error_of(call) for call in calls]


def freed_after(name: str) -> None:
    _error_of(lambda: kernel_result(name))
    _kept.clear()


def _error_of(call: Any) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def remote_product(port: int) -> tuple[str, float]:
    """The name of the GPU that a server of TVM offers, and the error of a product there."""
    session = tvm.rpc.connect("127.0.0.1", port)
    device = session.cuda(0)
    with tempfile.TemporaryDirectory() as folder:
        built, arrays, expected = _built_product(8, 8, 8, folder)
        session.upload(built.path, "product.so")
    arguments = [tvm.runtime.tensor(array, device) for array in arrays]
    session.load_module("product.so")["main"](*arguments)
    error = float(np.abs(arguments[-1].numpy() - expected).max())
    return str(device.device_name), error


def filled_memory() -> tuple[str, list[float]]:
    """The error of an allocation that is too much, and a result after it."""
    taken = on_gpu(np.zeros(40 << 20, "uint8"))
    error = _error_of(lambda: on_gpu(np.zeros(40 << 20, "uint8")))
    del taken
    on_gpu(np.zeros(40 << 20, "uint8"))
    return error, kernel_result("fair")


def touched_by_the_host() -> int:
    """What this process finds where a tensor of the GPU is."""
    return ctypes.c_int.from_address(int(on_gpu(np.zeros(64, "float32")).data_ptr())).value


def network_error(graphs: bool) -> float:
    """The largest difference of a small network on the GPU, in TVM's virtual machine, from the same
    on the CPU, for several inputs. With `graphs` most of its kernels run as a CUDA graph."""
    prepared = _small_network()
    gpu = _with_graphs(prepared) if graphs else compile_network(prepared, TARGET, {}, inside=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.so")
        save_network(gpu, path)
        executable = tvm.runtime.load_module(str(path))
    machine = relax.VirtualMachine(executable, [tvm.cuda(0), tvm.cpu()])
    here = compile_network(prepared, native_target(1), {})
    draw, errors = np.random.default_rng(0), []
    for _ in range(3):
        x = draw.standard_normal((4, 24)).astype("float32")
        result = machine["main"](on_gpu(x)).numpy()
        errors.append(float(np.abs(result - run_compiled(here, [x])[0]).max()))
    return max(errors)


def _small_network() -> Any:
    builder, draw = relax.BlockBuilder(), np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((4, 24), "float32"))
    weights = [
        relax.const(draw.standard_normal(shape).astype("float32")) for shape in ((24, 16), (16, 8))
    ]
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for weight in weights:
                value = builder.emit(relax.op.matmul(value, weight))
                value = builder.emit(relax.op.nn.relu(value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return relax.transform.LegalizeOps()(builder.get())


def _with_graphs(prepared: Any) -> CompiledNetwork:
    """As TVM's pipeline for CUDA does it."""
    target, passes = to_tvm(TARGET), relax.backend.cuda.pipeline
    context = lowering(TARGET)
    config = {**dict(context.config), "relax.backend.use_cuda_graph": True}
    instruments = list(context.instruments)
    with target, tvm.transform.PassContext(3, config=config, instruments=instruments):
        scheduled = tvm.IRModule(
            {
                variable: _scheduled(variable, function)
                for variable, function in prepared.functions_items()
            }
        )
        lower = tvm.transform.Sequential(
            passes.dataflow_lower_passes(target) + passes.finalize_passes(target)
        )
        lifted = Lifted(scheduled, inside=True)
        executable = relax.build(lifted.mod, target=target, relax_pipeline=lower)
    return CompiledNetwork(executable, lifted, TARGET)


def _scheduled(variable: Any, function: Any) -> Any:
    if not isinstance(function, tvm.tirx.PrimFunc):
        return function
    module = plainly_scheduled(normalized(function), TARGET)
    made = module["main"].with_attr("global_symbol", str(variable.name_hint))
    return made.with_attr("tirx.is_scheduled", True)


def _loaded(module: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return tvm.runtime.load_module(_built(module, folder).path)


def _built(module: Any, folder: str) -> Built:
    built = compile_module(module, TARGET, "program", folder)
    if not isinstance(built, Built):
        raise RuntimeError(built.text)
    return built


def on_gpu(array: Any) -> Any:
    return tvm.runtime.tensor(array, tvm.cuda(0))
