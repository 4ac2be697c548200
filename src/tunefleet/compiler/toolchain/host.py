"""Parses targets, detects the native target, and checks whether this machine runs a target."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tunefleet.compiler.toolchain import gpu, load_tvm, toolchain_identity
from tunefleet.compiler.toolchain.nvcc import nvcc_version
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.identity import ToolchainIdentity
from tunefleet.core.numbers import count
from tunefleet.core.target import LIMITS, CpuTarget, CudaTarget, Target
from tunefleet.errors import InputError
from tunefleet.hardware.gpu import driver_version
from tunefleet.hardware.processor import X86_FEATURES, cpu_info

#: Supported architectures: LLVM aborts the process for an unknown one.
MACHINES = ("x86_64", "aarch64", "armv7l", "riscv64")

#: Example processors in error messages, by architecture.
_KNOWN_PROCESSORS = {
    "x86_64": "znver3 or skylake-avx512", "aarch64": "cortex-a72 or neoverse-n1",
    "armv7l": "cortex-a9", "riscv64": "generic-rv64",
}  # fmt: skip

_HALF_VECTORS = "prefer-256-bit"


def native_target(threads: int | None = None) -> CpuTarget:
    """The target of this machine: LLVM's name of the processor, corrected by the features that it
    really has.

    LLVM detects the processor by family and model. A hypervisor may hide instructions (such as
    AVX-512 of a Zen 4): code for the bare name then fails with an illegal instruction. Or it
    reports an older model (Rocket Lake for a processor with AMX), whose name lacks features.
    """
    tvm = load_tvm()
    mcpu = str(tvm.target.codegen.llvm_get_system_cpu())
    hidden, more = _hidden_features(mcpu), _more_features(mcpu)
    return with_whole_vectors(
        CpuTarget(
            mcpu=mcpu,
            mattr=(*(f"-{feature}" for feature in hidden), *(f"+{feature}" for feature in more)),
            threads=threads or cpu_info().physical_cores,
        )
    )


def with_whole_vectors(target: CpuTarget) -> CpuTarget:
    """The target with full-width AVX-512 registers.

    For many Intel processors LLVM uses half the width, because of the reduced clock of the first
    processors with AVX-512. That is up to 1.6 times slower (docs/benchmarks.md).
    """
    features = llvm_features(target)
    if not {"avx512f", _HALF_VECTORS} <= features:
        return target
    return replace(target, mattr=(*target.mattr, f"-{_HALF_VECTORS}"))


def machine_of(target: Target) -> str:
    """The architecture of the CPU of a target, as in `uname -m`."""
    return target.cpu.machine or os.uname().machine


def is_foreign(target: Target) -> bool:
    """Whether the CPU code is for another architecture than this machine's."""
    return machine_of(target) != os.uname().machine


def _hidden_features(mcpu: str) -> list[str]:
    if os.uname().machine != "x86_64":
        return []
    flags = cpu_info().facts.flags
    hidden = [f for f in codegen_features(CpuTarget(mcpu, 1)) if X86_FEATURES[f] not in flags]
    if "avx512f" in hidden:  # implies all other AVX-512 features
        hidden = [f for f in hidden if f == "avx512f" or not f.startswith("avx512")]
    return hidden


def _more_features(mcpu: str) -> list[str]:
    """Features of this processor that the one detected by LLVM lacks."""
    if os.uname().machine != "x86_64":
        return []
    own, flags = codegen_features(CpuTarget(mcpu, 1)), cpu_info().facts.flags
    return [name for name, flag in X86_FEATURES.items() if flag in flags and name not in own]


def llvm_features(target: CpuTarget) -> frozenset[str]:
    """All features, by LLVM's names, that code for this target may use."""
    features = _llvm_says(target)
    removed = {a[1:] for a in target.mattr if a.startswith("-")}
    added = {a[1:] for a in target.mattr if a.startswith("+")}
    if "avx512f" in removed:
        removed |= {f for f in features if f.startswith("avx512")}
    return frozenset((features - removed) | added)


@functools.lru_cache(maxsize=64)
def _llvm_says(target: CpuTarget) -> frozenset[str]:
    return frozenset(
        str(f) for f in load_tvm().target.codegen.llvm_get_cpu_features(to_tvm(target))
    )


def codegen_features(target: CpuTarget) -> list[str]:
    """Features of `X86_FEATURES` that LLVM may use for this target."""
    return sorted(llvm_features(target) & set(X86_FEATURES))


def instructions(target: Target) -> tuple[str, ...]:
    """Instruction sets, by the kernel's names, that code for a target's CPU may use."""
    machine = machine_of(target)
    if machine != "x86_64":
        return (machine,)
    return (machine, *(X86_FEATURES[feature] for feature in codegen_features(target.cpu)))


def check_runs_here(target: Target) -> None:
    """Raises InputError if this machine cannot run code for `target`."""
    _check_cpu(target)
    if isinstance(target, CudaTarget):
        gpu.check_present(target)


def _check_cpu(target: Target) -> None:
    here = os.uname().machine
    if is_foreign(target):
        raise InputError(
            f"target '{target}' is for {machine_of(target)}, but this machine is {here}",
            cure="use a device of that kind, or --target native",
        )
    if here != "x86_64":
        return
    flags = cpu_info().facts.flags
    missing = [f for f in codegen_features(target.cpu) if X86_FEATURES[f] not in flags]
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"target '{target}' uses {shown}, which this processor does not have",
            cure="use --target native",
        )
    cores = len(cpu_info().granted)
    if target.threads > cores:
        raise InputError(
            f"target '{target}' needs {target.threads} threads, but "
            f"this process may use {cores} core{'s' * (cores > 1)}",
            cure=f"use --threads {cores}",
        )


def parse_target(text: str, threads: int | None = None) -> Target:
    """Parse a user's target: `native`, a processor (`znver3`), `cuda` for the GPU of this machine,
    `cuda/sm_90`, or a canonical text.

    Canonical texts are `llvm [-mtriple=T] -mcpu=X [-mattr=+a,-b] [-num-cores=N]` for a CPU, and
    `cuda [-arch=sm_80]` for a GPU, with limits of a thread block by TVM's names and the options of
    the CPU that launches its kernels as `-host-mcpu=X` and so on; the default is this machine's CPU
    with one thread. `threads` applies to a CPU target. Raises InputError for an unknown option or
    processor.
    """
    if not isinstance(text, str):
        raise InputError(
            f"a target is a text, not {type(text).__name__}", cure="leave it out, or write native"
        )
    if threads is not None:
        try:
            threads = count("threads", threads)
        except ValueError as error:
            raise InputError(str(error), cure="give the number of threads of kernels") from error
    if text in ("native", "cpu"):
        return native_target(threads)
    words = text.split()
    if not words:
        raise InputError("the target is empty", cure="leave it out, or write native")
    if words[0] == "cuda" or words[0].startswith("cuda/"):
        return _cuda_target(text, words)
    if words[0] == "llvm":
        words = words[1:]
    elif len(words) == 1 and not words[0].startswith("-"):
        words = [f"-mcpu={words[0]}"]
    return _cpu_target(text, _options(text, words, _CPU_OPTIONS), threads)


_CPU_OPTIONS = ("mtriple", "mcpu", "mattr", "num-cores")
_CUDA_OPTIONS = ("arch", *LIMITS, *(f"host-{name}" for name in _CPU_OPTIONS))


def _options(text: str, words: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for word in words:
        match = re.fullmatch(r"-([\w-]+)=(\S+)", word)
        if match is None or match.group(1) not in known:
            raise InputError(
                f"target '{text}': cannot read '{word}'",
                cure="write native, a processor name, 'llvm -mcpu=NAME [-mattr=+a,-b]', "
                "or cuda/sm_80",
            )
        if match.group(1) in options:
            raise InputError(
                f"target '{text}': duplicate option -{match.group(1)}", cure="leave one out"
            )
        options[match.group(1)] = match.group(2)
    return options


def _number(text: str, option: str, value: str) -> int:
    if not (re.fullmatch("[0-9]{1,9}", value) and int(value)):
        raise InputError(
            f"target '{text}': -{option} is '{value}'", cure="give a positive whole number"
        )
    return int(value)


def _cpu_target(text: str, options: dict[str, str], threads: int | None) -> CpuTarget:
    triple = options.get("mtriple", "")
    machine = triple.partition("-")[0]
    if triple and (machine not in MACHINES or not re.fullmatch(r"[\w-]+", triple)):
        raise InputError(
            f"target '{text}': cannot generate code for '{triple}'",
            cure=f"write for example -mtriple=aarch64-linux-gnu; supported: {', '.join(MACHINES)}",
        )
    mcpu = options.get("mcpu", "generic" if triple else "")
    known = _KNOWN_PROCESSORS.get(machine or os.uname().machine, "generic")
    cure = f"use --target native, or a name such as {known}"
    if not mcpu:
        raise InputError(f"target '{text}': -mcpu is missing", cure=cure)
    if mcpu not in processors(triple):
        raise InputError(
            f"target '{text}': LLVM knows no processor '{mcpu}'" + f" of {machine}" * bool(triple),
            cure=cure,
        )
    attributes = tuple(a for a in options.get("mattr", "").split(",") if a)
    _check_attributes(text, attributes, mcpu, triple)
    cores = options.get("num-cores")
    wanted = threads or (_number(text, "num-cores", cores) if cores is not None else None)
    if not triple and mcpu == native_target().mcpu and "mattr" not in options:
        # The name of this machine's processor means this machine, without its hidden features.
        return native_target(wanted)
    own = 1 if machine not in ("", os.uname().machine) else cpu_info().physical_cores
    return CpuTarget(
        mcpu=mcpu,
        mattr=attributes,
        threads=wanted or own,
        mtriple=triple,
    )


def _check_attributes(text: str, attributes: Sequence[str], mcpu: str, triple: str) -> None:
    """Raises InputError for a feature without a sign, at which LLVM would fail during compilation,
    and for a feature that LLVM does not know, which it would ignore."""
    for attribute in attributes:
        if attribute[0] not in "+-":
            raise InputError(
                f"target '{text}': '{attribute}' in -mattr has no sign",
                cure=f"write +{attribute} to use it, -{attribute} to do without",
            )
    names = [attribute[1:] for attribute in attributes]
    with quiet():  # LLVM prints a warning for each
        known = _llvm_says(CpuTarget(mcpu, 1, tuple(f"+{name}" for name in names), triple))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"target '{text}': LLVM knows no feature '{unknown[0]}' of "
            f"{triple.partition('-')[0] or os.uname().machine}",
            cure="use LLVM's names, which may differ from /proc/cpuinfo",
        )


def _cuda_target(text: str, words: Sequence[str]) -> CudaTarget:
    short = words[0].partition("/")[2]
    options = _options(text, words[1:], _CUDA_OPTIONS)
    arch = options.get("arch", short) or gpu.architecture_here()
    of_host = {k.removeprefix("host-"): v for k, v in options.items() if k.startswith("host-")}
    named = {"mcpu", "mtriple"} & set(of_host)
    cores = of_host.get("num-cores")
    threads = _number(text, "host-num-cores", cores) if cores is not None else 1
    host = _cpu_target(text, of_host, threads) if named else native_target(threads)
    limits = {name: _number(text, o, options[o]) for o, name in LIMITS.items() if o in options}
    try:
        return CudaTarget(arch, host, **limits)
    except ValueError as error:
        raise InputError(f"target '{text}': {error}", cure="write e.g. cuda/sm_80") from error


def toolchain_of(target: Target) -> ToolchainIdentity:
    """The toolchain for a target. Raises SetupError if nvcc is missing."""
    own = toolchain_identity()
    if not isinstance(target, CudaTarget):
        return own
    return replace(own, cuda=nvcc_version(), driver=driver_version())


def processors(triple: str = "") -> frozenset[str]:
    """LLVM's processor names for a triple, by default of this machine's architecture."""
    tvm = load_tvm()
    bare = tvm.target.Target({"kind": "llvm", **({"mtriple": triple} if triple else {})})
    return frozenset(str(name) for name in tvm.target.codegen.llvm_get_cpu_archlist(bare))


def to_tvm(target: Target) -> Any:
    """The equivalent TVM target."""
    return load_tvm().target.Target(_config(target))


def _config(target: Target) -> dict[str, Any]:
    cpu = target.cpu
    config: dict[str, Any] = {"kind": cpu.kind, "mcpu": cpu.mcpu, "num-cores": cpu.threads}
    if cpu.mattr:
        config["mattr"] = list(cpu.mattr)
    if cpu.mtriple:
        config["mtriple"] = cpu.mtriple
    if isinstance(target, CudaTarget):
        limits = {option: getattr(target, name) for option, name in LIMITS.items()}
        # A second name of a limit, which TVM's own kernels read.
        limits["max_num_threads"] = target.threads_per_block
        return {"kind": target.kind, "arch": target.arch, "host": config, **limits}
    return config


def target_json(target: Target) -> dict[str, Any]:
    """The target in the format of TVM's logs."""
    from tunefleet.compiler.toolchain.programs import plain

    exported: dict[str, Any] = plain(to_tvm(target).export())
    return exported
