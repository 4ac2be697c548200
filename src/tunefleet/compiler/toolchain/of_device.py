"""Targets of devices elsewhere: which code runs there, from what the device says of itself."""

from __future__ import annotations

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import (
    codegen_features,
    instructions,
    machine_of,
    native_target,
    parse_target,
    processors,
    with_whole_vectors,
)
from tunefleet.core.device import DeviceDescription
from tunefleet.core.gpu import CUDA, Gpu
from tunefleet.core.target import SHARED_MEMORY_BYTES, CpuTarget, CudaTarget, Target
from tunefleet.errors import InputError
from tunefleet.hardware.gpu import check_runs_on
from tunefleet.hardware.processor import X86_FEATURES, device_identity

#: LLVM's processors by what they have, the one that has most first.
_X86_LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")
#: LLVM's name of what the kernel names, of those that change kernels of floats and bytes. SVE is
#: left out: its vectors have no size that a schedule could count on.
_ARM_FEATURES = {
    "asimddp": "dotprod", "asimdhp": "fullfp16", "asimdfhm": "fp16fml", "asimdrdm": "rdm",
    "atomics": "lse", "i8mm": "i8mm", "bf16": "bf16",
}  # fmt: skip


def device_target(text: str, description: DeviceDescription, threads: int | None) -> Target:
    """The target of a device: what `text` says, its own processor where that is `native`.

    `threads` are all of its cores where nobody says how many. Raises InputError for a target that
    does not run there.
    """
    if description.gpu is not None:
        return _gpu_target(text, description, description.gpu)
    threads = threads or len(description.cores)
    if threads > len(description.cores):
        raise InputError(
            f"{threads} threads are wanted, {description.identity.name} gives "
            f"{len(description.cores)} cores",
            cure=f"use --threads {len(description.cores)}",
        )
    own = text in ("native", "cpu")
    target = _own_target(description, threads) if own else parse_target(text, threads)
    _check_runs_on(target, description)
    return target


def _gpu_target(text: str, description: DeviceDescription, gpu: Gpu) -> Target:
    """One thread launches kernels."""
    if text in ("native", "cpu", CUDA):
        return CudaTarget(
            gpu.arch,
            native_target(1) if gpu.uuid else _any_target(description),
            shared_memory_bytes=min(gpu.shared_memory_bytes, SHARED_MEMORY_BYTES),
            threads_per_block=gpu.threads_per_block,
            registers_per_block=gpu.registers_per_block,
            warp_size=gpu.warp_size,
        )
    target = parse_target(text, 1)
    if not isinstance(target, CudaTarget):
        raise InputError(
            f"target '{target}' is for a processor, and {gpu.name} is a GPU",
            cure="leave --target out",
        )
    check_runs_on(target, gpu)
    return target


def _any_target(description: DeviceDescription) -> CpuTarget:
    """The host of a GPU elsewhere: it launches kernels, and nobody asked what else it can do."""
    mcpu = _X86_LEVELS[-1] if description.machine == "x86_64" else "generic"
    return CpuTarget(mcpu, 1, mtriple=_triple(description))


def _own_target(description: DeviceDescription, threads: int) -> CpuTarget:
    identity, here = description.identity, device_identity()
    if (identity.name, identity.isa) == (here.name, here.isa):
        return native_target(threads)
    isa = set(identity.isa)
    if description.machine == "x86_64":
        for level in _X86_LEVELS:
            has = codegen_features(CpuTarget(level, threads, mtriple=_triple(description)))
            if all(X86_FEATURES[feature] in isa for feature in has):
                more = [f for f, said in X86_FEATURES.items() if said in isa and f not in has]
                attributes = tuple(f"+{feature}" for feature in more)
                return with_whole_vectors(
                    CpuTarget(level, threads, attributes, _triple(description))
                )
    if description.machine == "aarch64":
        named = identity.name.lower()
        triple = _triple(description)
        mcpu = named if named in processors(triple) else "generic"
        attributes = tuple(f"+{name}" for said, name in _ARM_FEATURES.items() if said in isa)
        return CpuTarget(mcpu, threads, ("+neon", *attributes), triple)
    raise InputError(
        f"nobody knows which code suits a {description.machine} by itself",
        cure=f"name it: --target 'llvm -mtriple={_triple(description)} -mcpu=NAME'",
    )


def _triple(description: DeviceDescription) -> str:
    """Empty where it is that of this machine."""
    here = str(load_tvm().target.codegen.llvm_get_system_triple()).partition("-")[0]
    return "" if description.machine == here else f"{description.machine}-linux-gnu"


def _check_runs_on(target: Target, description: DeviceDescription) -> None:
    name = description.identity.name
    if not isinstance(target, CpuTarget):
        raise InputError(f"target '{target}' needs a GPU, and {name} is a processor")
    if machine_of(target) != description.machine:
        raise InputError(
            f"target '{target}' is for {machine_of(target)}, and {name} is {description.machine}",
            cure="leave --target out",
        )
    missing = [f for f in instructions(target)[1:] if f not in description.identity.isa]
    if missing:
        raise InputError(
            f"target '{target}' uses {', '.join(missing[:3])}, which {name} does not have",
            cure="leave --target out",
        )
