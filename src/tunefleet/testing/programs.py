"""Small programs that behave or misbehave, to be measured on a device."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.core.target import Target
from tunefleet.core.trial import Built
from tunefleet.devices import reference

_C = """
#include <stdint.h>
#include <unistd.h>
int __tvm_ffi_main(void *self, const void *args, int32_t count, void *result) {{ {body} }}
"""
_ARGS = (((16,), "float32"),)


def matmul(folder: Path, factor: float = 1.0, target: Target | None = None) -> Built:
    """About a millisecond on this machine, a small one on a GPU; with a factor that is not 1 the
    result is another."""
    from tunefleet.compiler.code.build import compile_module
    from tunefleet.compiler.space.spaces import plainly_scheduled
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import native_target

    if factor == 1.0 and target is None:
        return reference.reference_kernel(native_target(1), str(folder))
    te, n = load_tvm().te, 384 if target is None else 32
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j] * factor, axis=k), name="c")
    module = load_tvm().s_tir.Schedule(te.create_prim_func([a, b, c])).mod
    if target is not None:
        module = plainly_scheduled(module, target)
    made = compile_module(module, target or native_target(1), "product", str(folder))
    assert isinstance(made, Built)
    return made


def of_script(folder: Path, name: str, text: str, target: Target) -> Built:
    """A program of TVM's script: the function `main`."""
    from tunefleet.compiler.code.build import compile_module
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    function = tvm.script.from_source(text, {"T": tvm.script.tirx})
    built = compile_module(tvm.IRModule({"main": function}), target, name, str(folder))
    assert isinstance(built, Built), built
    return built


def of_c(folder: Path, name: str, body: str) -> Built:
    """A program whose function is C."""
    source, library = folder / f"{name}.c", folder / f"{name}-{time.monotonic_ns()}.so"
    source.write_text(_C.format(body=body), encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return Built(name, str(library), _ARGS, 0.0)


def network(folder: Path, target: Target | None = None) -> tuple[str, list[Any]]:
    """The path of a compiled network with weights and two outputs, and inputs of it."""
    from tunefleet.compiler.code.executable import compile_network, save_network
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import native_target

    relax, shape = load_tvm().relax, (4, 8)
    generator = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(shape, "float32"))
    weight = relax.const(generator.random((8, 8), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(data, weight))
            largest = builder.emit(relax.op.argmax(product, axis=1))
            outputs = builder.emit_output(relax.Tuple([product, largest]))
        builder.emit_func_output(outputs)
    module = relax.transform.LegalizeOps()(builder.get())
    path = folder / "network.so"
    save_network(compile_network(module, target or native_target(1), {}), path)
    return str(path), [generator.random(shape, "float32")]


def crashing(folder: Path) -> Built:
    return of_c(folder, "crash", "*(volatile int *)0 = 1; return 0;")


def hanging(folder: Path) -> Built:
    return of_c(folder, "hang", "for (;;) pause(); return 0;")


def no_library(folder: Path) -> Built:
    path = folder / f"text-{time.monotonic_ns()}.so"
    path.write_text("this is text", encoding="utf-8")
    return Built("text", str(path), _ARGS, 0.0)
