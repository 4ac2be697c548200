"""This machine as a target, from what the processor really offers."""

from __future__ import annotations

import os
import re
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.target import Target
from tunefleet.errors import InputError
from tunefleet.hardware.processor import X86_FEATURES, cpu_info


def native_target(threads: int | None = None) -> Target:
    """Code for this machine: LLVM's name of the processor less what it does not really have.

    LLVM names the processor by family and model. A hypervisor may hide instructions of it (a
    Zen 4 without AVX-512, say): code for the bare name then dies with an illegal instruction.
    """
    tvm = load_tvm()
    mcpu = str(tvm.target.codegen.llvm_get_system_cpu())
    hidden = _hidden_features(mcpu)
    return Target(
        mcpu=mcpu,
        mattr=tuple(f"-{feature}" for feature in hidden),
        threads=threads or cpu_info().physical_cores,
    )


def _hidden_features(mcpu: str) -> list[str]:
    if os.uname().machine != "x86_64":
        return []
    flags = cpu_info().flags
    hidden = [f for f in _codegen_features(Target(mcpu, 1)) if X86_FEATURES[f] not in flags]
    if "avx512f" in hidden:  # takes every other AVX-512 feature with it
        hidden = [f for f in hidden if f == "avx512f" or not f.startswith("avx512")]
    return hidden


def _codegen_features(target: Target) -> list[str]:
    """Features of `X86_FEATURES` that LLVM may use for this target."""
    codegen = load_tvm().target.codegen
    tvm_target = to_tvm(target)
    features = {str(name) for name in codegen.llvm_get_cpu_features(tvm_target)}
    removed = {a[1:] for a in target.mattr if a.startswith("-")}
    added = {a[1:] for a in target.mattr if a.startswith("+")}
    if "avx512f" in removed:
        removed |= {f for f in features if f.startswith("avx512")}
    return sorted(((features - removed) | added) & set(X86_FEATURES))


def instructions(target: Target) -> tuple[str, ...]:
    """Instruction sets that code for a target may use, by the kernel's names for them."""
    machine = os.uname().machine
    if machine != "x86_64":
        return (machine,)
    return (machine, *(X86_FEATURES[feature] for feature in _codegen_features(target)))


def check_runs_here(target: Target) -> None:
    """Raise InputError when code for `target` would use instructions this machine lacks."""
    if os.uname().machine != "x86_64":
        return
    missing = [f for f in _codegen_features(target) if X86_FEATURES[f] not in cpu_info().flags]
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"target '{target}' uses {shown}, which this processor does not have",
            cure="use --target native",
        )
    cores = len(cpu_info().cores)
    if target.threads > cores:
        raise InputError(
            f"target '{target}' wants {target.threads} threads, this process may use {cores} cores",
            cure=f"use --threads {cores}",
        )


def parse_target(text: str, threads: int | None = None) -> Target:
    """`native`, a processor name (`znver3`), or `llvm -mcpu=X -mattr=+a,-b -num-cores=N`.

    Raises InputError for an unknown option or processor.
    """
    if text in ("native", "cpu"):
        return native_target(threads)
    words = text.split()
    if not words:
        raise InputError("the target is empty", cure="leave it out, or write native")
    if words[0] == "llvm":
        words = words[1:]
    elif len(words) == 1 and not words[0].startswith("-"):
        words = [f"-mcpu={words[0]}"]
    options: dict[str, str] = {}
    for word in words:
        match = re.fullmatch(r"-(mcpu|mattr|num-cores)=(\S+)", word)
        if match is None:
            raise InputError(
                f"target '{text}': cannot read '{word}'",
                cure="write native, a processor name, or 'llvm -mcpu=NAME [-mattr=+a,-b]'",
            )
        options[match.group(1)] = match.group(2)
    mcpu = options.get("mcpu", "")
    codegen = load_tvm().target.codegen
    host = load_tvm().target.Target({"kind": "llvm"})
    if mcpu not in {str(name) for name in codegen.llvm_get_cpu_archlist(host)}:
        raise InputError(
            f"target '{text}': LLVM knows no processor '{mcpu}'",
            cure="use --target native, or a name such as znver3 or skylake-avx512",
        )
    cores = options.get("num-cores")
    if cores is not None and not (re.fullmatch("[0-9]{1,9}", cores) and int(cores)):
        raise InputError(
            f"target '{text}': -num-cores is '{cores}'", cure="give a positive whole number"
        )
    if mcpu == native_target().mcpu and "mattr" not in options:
        # The processor of this machine by name means this machine, less what is hidden of it.
        return native_target(threads or (int(cores) if cores else None))
    chosen = threads or (int(cores) if cores else cpu_info().physical_cores)
    return Target(
        mcpu=mcpu,
        mattr=tuple(a for a in options.get("mattr", "").split(",") if a),
        threads=chosen,
    )


def to_tvm(target: Target) -> Any:
    """The TVM target that compiles for `target`."""
    config: dict[str, Any] = {
        "kind": target.kind, "mcpu": target.mcpu, "num-cores": target.threads
    }  # fmt: skip
    if target.mattr:
        config["mattr"] = list(target.mattr)
    return load_tvm().target.Target(config)


def target_json(target: Target) -> dict[str, Any]:
    """The target as TVM writes it into its own logs."""
    from tunefleet.compiler.toolchain.programs import plain

    found: dict[str, Any] = plain(to_tvm(target).export())
    return found
