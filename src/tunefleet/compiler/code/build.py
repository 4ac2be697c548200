"""The build stage: compiles candidates to shared libraries."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunefleet.compiler.code.device_code import packed_imports
from tunefleet.compiler.code.packing import without_packing
from tunefleet.compiler.code.prefetching import with_prefetches
from tunefleet.compiler.code.replay import scheduled
from tunefleet.compiler.code.weight_orders import UnknownOrderError, packings_of
from tunefleet.compiler.graph.forms import forms
from tunefleet.compiler.space.spaces import plainly_scheduled
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import to_tvm
from tunefleet.compiler.toolchain.linking import link
from tunefleet.compiler.toolchain.passes import reported_passes
from tunefleet.compiler.toolchain.programs import load_program
from tunefleet.core.target import CudaTarget, Target
from tunefleet.core.trial import Built, Failure, FailureKind
from tunefleet.errors import InternalError, SetupError, raise_disk_full, raise_mistake

tvm = load_tvm()


def lowering(target: Target, *, graphs: bool = False) -> Any:
    """The pass context for lowering both candidates and delivered networks.

    It disables TVM's common subexpression elimination: LLVM does the same, and TVM's takes a
    quarter of the lowering time (docs/benchmarks.md, search). It disables argument checks of
    kernels, which cost another quarter in LLVM: kernels are called by a network with the same
    shapes, or with arguments created for them; networks check the user's inputs.

    TVM emits waits for asynchronous copies wherever a schedule prefetches, but emits the copies
    themselves only if enabled. Its DMA lowering for Hexagon is disabled: CUDA has no such call.

    `graphs` has a network record its kernels as CUDA graphs.
    """
    config = {
        "relax.backend.use_cuda_graph": graphs,
        "tirx.disable_cse_tir": True,
        "tirx.disable_assert": True,
        "tirx.use_async_copy": target.copies_ahead,
    }
    instruments = reported_passes()
    if target.copies_ahead:
        instruments.append(_WithoutLoopsAsCopies())
    return tvm.transform.PassContext(opt_level=3, config=config, instruments=instruments)


@tvm.ir.instrument.pass_instrument
class _WithoutLoopsAsCopies:
    def should_run(self, module: Any, info: Any) -> bool:
        return str(info.name) != "s_tir.LowerAsyncDMA"


def lowered(module: Any, target: Target) -> Any:
    """A scheduled module as an unlinked TVM runtime module, with GPU kernels as source.

    Raises TVM's own errors for a program that it cannot compile."""
    with lowering(target):
        return tvm.tirx.build(module, target=to_tvm(target))


def build_candidate(
    program: str, target: Target, candidate_id: str, trace: str, directory: str
) -> Built | Failure:
    """Compile one candidate into `directory` under a unique name.

    Weights that the schedule packs are arguments with their packed shape.
    """
    try:
        module = scheduled(load_program(program), target, trace)
        packings = packings_of(module["main"])
        module = with_prefetches(without_packing(module), packings)
    except UnknownOrderError as error:
        return Failure(FailureKind.INSTANTIATE, str(error))
    except Exception as error:
        raise_mistake(error)
        return Failure(FailureKind.INSTANTIATE, one_line(error))
    built = compile_module(module, target, candidate_id, directory)
    return replace(built, packings=packings) if isinstance(built, Built) else built


def build_default(program: str, target: Target, name: str, directory: str) -> Built | Failure:
    """Compile a task with the plain schedule, which networks use for tasks without a winner."""
    direct, *_ = forms(load_program(program))
    return compile_module(plainly_scheduled(direct, target), target, name, directory)


def compile_module(module: Any, target: Target, name: str, directory: str) -> Built | Failure:
    """Lower, compile and link a module whose only function is `main`.

    `build_s` is CPU time, which is independent of other load on the machine.
    """
    started = _cpu_seconds()
    # dlopen caches by path: the name must be unique over all builds and processes.
    stem = Path(directory) / f"{name}-{os.getpid()}-{time.monotonic_ns():x}"
    object_file, library = f"{stem}.o", f"{stem}.so"
    try:
        arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
        args = tuple((tuple(int(d) for d in a.shape), str(a.dtype)) for a in arguments)
        library_module = lowered(module, target)
        library_module.write_to_file(object_file, "o")
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            objects = [object_file]
            if isinstance(target, CudaTarget):
                objects.append(packed_imports(library_module, target, folder))
            # Two schedules may be the same code. Objects are kept by content, and removed when
            # their own batch has been measured.
            link(objects, library, target, name=name)
    except (SetupError, InternalError):
        raise
    except subprocess.CalledProcessError as error:
        raise_disk_full(error, error.stderr)
        return Failure(FailureKind.BUILD_ERROR, one_line(error.stderr))
    except Exception as error:
        raise_mistake(error)
        kind = FailureKind.BUILD_MEMORY if is_memory(error) else FailureKind.BUILD_ERROR
        return Failure(kind, one_line(error))
    return Built(name, library, args, _cpu_seconds() - started, object_file)


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children (the linker)."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def is_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, MemoryError) or "bad_alloc" in text or "out of memory" in text.lower()


def one_line(error: object) -> str:
    """The last informative line of an error's text, shortened. Lines of marks below a program are
    skipped."""
    lines = [line.strip() for line in str(error).splitlines() if any(map(str.isalnum, line))]
    return (lines[-1] if lines else type(error).__name__)[:300]
