"""Is this machine fit to tune, and can its measurements be trusted? With advice where not."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tunefleet.artifacts.cuda import load_cuda
from tunefleet.artifacts.runtime import FFI_VERSION, TVM_VERSION, installed_versions, set_threads
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import check_runs_here, native_target
from tunefleet.compiler.toolchain.nvcc import nvcc_version
from tunefleet.core.layout import LayoutChoice
from tunefleet.errors import TunefleetError
from tunefleet.hardware import nvml
from tunefleet.hardware.gpu import gpus
from tunefleet.hardware.processor import X86_FEATURES, cpu_info, device_identity
from tunefleet.system.files import check_runs_code
from tunefleet.system.sandbox import sandbox_support
from tunefleet.system.scratch import scratch_folder

CheckJson = dict[str, Any]

_NEEDED_FREE_GIB = 2


def examine(choice: LayoutChoice, home: Path) -> dict[str, Any]:
    """Every check as {name, ok, severity: ok | warning | error, value, advice}.

    `choice` is how the machine would be used. Which cores slow each other down is measured and kept
    in `home`, for the layouts of later commands. An error means that tuning cannot work, a warning
    that something is slower or less trustworthy than it could be.
    """
    checks = [_guarded(name, check) for name, check in _checks(choice, home).items()]
    return {"checks": checks, "ok": all(c["severity"] != "error" for c in checks)}


def _guarded(name: str, check: Callable[[], CheckJson]) -> CheckJson:
    try:
        outcome = check()
    except TunefleetError as error:
        outcome = _error(error.what, error.cure)
    except Exception as error:
        outcome = _error(f"{type(error).__name__}: {error}", "report this")
    return {"name": name, **outcome}


def _fine(value: str) -> CheckJson:
    return {"ok": True, "severity": "ok", "value": value, "advice": ""}


def _warning(value: str, advice: str) -> CheckJson:
    return {"ok": False, "severity": "warning", "value": value, "advice": advice}


def _error(value: str, advice: str) -> CheckJson:
    return {"ok": False, "severity": "error", "value": value, "advice": advice}


def _python() -> CheckJson:
    value = f"{platform.python_version()} on {sys.platform}"
    if sys.platform != "linux":
        return _error(value, "tunefleet measures on Linux only")
    return _fine(value)


def _tvm() -> CheckJson:
    version = installed_versions()["apache-tvm"]
    if version != TVM_VERSION:
        installed = version or "not installed"
        return _error(installed, f"pip install apache-tvm=={TVM_VERSION}: no other was tried")
    return _fine(version)


def _ffi() -> CheckJson:
    version = installed_versions()["apache-tvm-ffi"]
    if version != FFI_VERSION:
        advice = f"pip install apache-tvm-ffi=={FFI_VERSION}: others crash with this TVM"
        return _error(version or "not installed", advice)
    return _fine(version)


def _llvm() -> CheckJson:
    return _fine(str(load_tvm().target.codegen.llvm_version_major()))


def _linker() -> CheckJson:
    path = shutil.which("ld") or shutil.which("ld.lld")
    if path is None:
        return _error("none on the PATH", "install binutils (or gcc): kernels are linked with it")
    return _fine(path)


def _compiler() -> CheckJson:
    path = shutil.which("g++") or shutil.which("gcc")
    if path is None:
        return _error("none on the PATH", "install gcc: whole networks are linked with it")
    return _fine(path)


def _cores() -> CheckJson:
    cpu, present = cpu_info(), os.cpu_count() or 1
    usable = len(cpu.granted)
    value = f"{usable} of {present} cores, {cpu.facts.name}"
    if cpu.quota is not None and cpu.quota < len(cpu.cores):
        value += f", limited to the time of {cpu.quota:g}"
        if cpu.quota < 1:
            return _warning(
                value,
                "a container's limit stops even one thread, in the middle of measurements: give it "
                "a whole core (docker --cpus, limits of Kubernetes)",
            )
        return _warning(value, "a container's limit: it tunes for as many cores as that is")
    if usable < present:
        return _warning(value, "this process is pinned: it tunes for the cores it may use")
    return _fine(value)


def _isa() -> CheckJson:
    target = native_target()
    check_runs_here(target)
    # What is removed for another reason (256-bit vectors are preferred) is no instruction.
    hidden = [a[1:] for a in target.mattr if a.startswith("-") and a[1:] in X86_FEATURES]
    value = ", ".join(device_identity().isa)
    if hidden:
        names = ", ".join(hidden)
        return _warning(
            value,
            f"LLVM calls this processor {target.mcpu}, but {names} is hidden here (a virtual "
            "machine?): code for the bare name would crash, so the native target leaves it out",
        )
    return _fine(value)


def _resources(choice: LayoutChoice) -> CheckJson:
    return _fine(choice.reason)


def _target(threads: int) -> CheckJson:
    return _fine(str(native_target(threads)))


def _threads(wanted: int) -> CheckJson:
    set_threads(wanted)
    got = int(load_tvm().get_global_func("runtime.NumThreads")())
    if got != wanted:
        return _error(f"{got} instead of {wanted}", "unset TVM_NUM_THREADS and OMP_NUM_THREADS")
    return _fine(f"{got} (TVM alone would use half the logical CPUs)")


def _load() -> CheckJson:
    load, cores = os.getloadavg()[0], len(cpu_info().cores)
    value = f"load {load:.1f} on {cores} cores"
    if load > 0.5 * cores:
        return _warning(value, "other programs are running: measurements will be disturbed")
    return _fine(value)


def _peak(threads: int) -> CheckJson:
    from tunefleet.devices.cpu import LocalCpu

    with scratch_folder("doctor") as directory:
        reached = LocalCpu(threads).peak(native_target(threads), directory)
    return _fine(f"{reached:.0f} GFLOP/s float32, measured")


def _gpus() -> CheckJson:
    found = gpus()
    if not found:
        return _fine("none; `tunefleet` needs none")
    value = "; ".join(f"{gpu.address}: {gpu.name}, {gpu.arch}" for gpu in found)
    load_cuda()
    value += f"; driver for CUDA {found[0].driver}, nvcc {nvcc_version()}"
    for gpu in found:
        others, down = nvml.others_on(gpu), nvml.held_down(gpu)
        if others:
            said = f"{others} other processes" if others > 1 else "another process"
            return _warning(value, f"{said} on {gpu.address}: measurements will be disturbed")
        if down:
            return _warning(value, f"{down} holds the clocks of {gpu.address} down")
    return _fine(value)


def _noise(threads: int) -> CheckJson:
    from tunefleet.devices.cpu import LocalCpu

    with scratch_folder("doctor") as directory:
        device, target = LocalCpu(threads), native_target(threads)
        times = [device.reference(target, directory) for _ in range(12)]
    spread = max(times) / min(times) - 1
    value = f"the reference kernel varies by {spread:.1%} over {len(times)} measurements"
    if spread > 0.03:
        return _warning(value, "batches will be measured again: stop other programs")
    return _fine(value)


def _neighbours(home: Path) -> CheckJson:
    from tunefleet.devices.neighbours import core_pairs, measure_joined, save_joined

    cpu = cpu_info()
    pairs = core_pairs(dict(cpu.siblings))
    if len(cpu.granted) < 2 or not pairs:
        return _fine("no two cores to compare")
    with scratch_folder("doctor") as directory:
        joined = measure_joined(pairs, directory)
    save_joined(joined, home)
    if not joined:
        return _fine(f"no core slows another down ({_counted(pairs)} measured)")
    slowest = max(joined, key=lambda each: each.slowdown.median)
    first, second = slowest.cores
    return _fine(
        f"{len(joined)} of {_counted(pairs)} of cores slow each other down, {first} and {second} "
        f"{slowest.slowdown.median:.1f} times: from the next command on, such cores count as one"
    )


def _counted(pairs: Sequence[tuple[int, int]]) -> str:
    return f"{len(pairs)} pair{'s' * (len(pairs) > 1)}"


def _memory() -> CheckJson:
    gib = cpu_info().facts.memory_gib
    if gib < 4:
        return _warning(f"{gib} GiB", "large networks may not fit: 8 GiB are comfortable")
    return _fine(f"{gib} GiB")


def _sandbox() -> CheckJson:
    support = sandbox_support()
    if not support.lack:
        return _fine(f"{support}: whoever reads a network reaches its files alone")
    return _warning(
        f"{support}; while a process reads a network, {support.lack}",
        "for networks of strangers use a kernel with Landlock and seccomp (Linux 6.12 with "
        "`landlock` in /sys/kernel/security/lsm), or a container that allows their calls",
    )


def _scratch() -> CheckJson:
    path = Path(tempfile.gettempdir())
    free = shutil.disk_usage(path).free / 2**30
    value = f"{path}, {free:.0f} GiB free"
    check_runs_code(path, "set TMPDIR to a folder on another disk")
    if free < _NEEDED_FREE_GIB:
        return _error(value, f"free {_NEEDED_FREE_GIB} GiB or set TMPDIR to another disk")
    return _fine(value)


def _checks(choice: LayoutChoice, home: Path) -> dict[str, Callable[[], CheckJson]]:
    return {
        "python": _python,
        "tvm": _tvm,
        "tvm ffi": _ffi,
        "llvm": _llvm,
        "linker": _linker,
        "compiler": _compiler,
        "cores": _cores,
        "resources": partial(_resources, choice),
        "instruction set": _isa,
        "target": partial(_target, choice.threads),
        "threads": partial(_threads, choice.threads),
        "memory": _memory,
        "scratch disk": _scratch,
        "sandbox": _sandbox,
        "gpu": _gpus,
        "load": _load,
        "peak": partial(_peak, choice.threads),
        "neighbours": partial(_neighbours, home),
        "noise": partial(_noise, choice.threads),
    }
