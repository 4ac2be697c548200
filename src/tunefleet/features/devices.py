"""Device features for the context of a program, for records and for running jobs.

They come from the device table if it has the device, otherwise from the machine's own description
(`DeviceIdentity`) and the target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.target import CpuTarget, Target
from tunefleet.features.context import device_numbers
from tunefleet.hardware import Hardware, HardwareTable, Kind, shipped_table
from tunefleet.hardware.llvm_names import GPU, architecture, vector_bits

#: Assumed clock of a CPU with unknown clock, for its peak only.
_CLOCK_GHZ = 3.0
#: Kinds of target, as TVM names them.
_GPUS = ("cuda", "rocm", "opencl", "metal", "vulkan", "webgpu")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program runs, as far as known: the `names` of the device, the target processor
    (LLVM's `mcpu`) and its features, the threads, the machine's own description, and its
    architecture (`uname -m`)."""

    names: tuple[str, ...] = ()
    gpu: bool = False
    processor: str = ""
    features: tuple[str, ...] = ()
    threads: int | None = None
    identity: DeviceIdentity | None = None
    machine: str = ""

    @classmethod
    def of_job(cls, target: Target, device: DeviceIdentity) -> Place:
        names = (device.key, device.name)
        if not isinstance(target, CpuTarget):
            return cls(names, gpu=True, identity=device)
        return cls(
            names=names,
            processor=target.mcpu,
            features=target.mattr,
            threads=target.threads,
            identity=device,
            machine=target.machine,
        )

    @classmethod
    def of_record(cls, device: str, target: str, extra: Mapping[str, Any]) -> Place:
        """From a record's columns; `target` is TVM's text or JSON. Empty names are dropped."""
        description = _target(target)
        identity = _identity(extra.get("device"))
        own = (identity.key, identity.name) if identity else ()
        threads, features = str(description.get("num-cores", "")), description.get("mattr")
        if isinstance(features, str):
            features = features.split(",")
        kind = description.get("kind", "")
        return cls(
            names=tuple(dict.fromkeys((device, *own, str(description.get("model", ""))))),
            gpu=kind in _GPUS,
            processor=str(description.get("mcpu", "")),
            features=tuple(map(str, features)) if isinstance(features, list) else (),
            threads=int(str(threads)) if str(threads).isdecimal() else None,
            identity=identity,
            machine=_machine(description),
        )

    @property
    def architecture(self) -> str:
        """One of `hardware.llvm_names`; "" if unknown."""
        if self.gpu:
            return GPU
        isa = self.identity.isa if self.identity else ()
        known = architecture((self.machine, self.processor, *self.features, *isa))
        row = self._row(None)
        if known or row is None:
            return known
        return GPU if row.kind is Kind.GPU else architecture(row.isa)

    def numbers(self, table: HardwareTable | None = None) -> tuple[float, ...]:
        """Its `context.device_numbers`; `table` defaults to the shipped device table."""
        row = self._row(table)
        return self._of_row(row) if row else self._of_machine()

    def _row(self, table: HardwareTable | None) -> Hardware | None:
        """Its row in a device table."""
        rows = ((table or shipped_table()).get(name) for name in self.names if name)
        return next((row for row in rows if row), None)

    def _of_row(self, row: Hardware) -> tuple[float, ...]:
        if row.kind is Kind.GPU:
            return device_numbers(
                gpu=True,
                peak_gflops=row.peaks_gflops.get("fp32"),
                bandwidth_gb_s=row.bandwidth_gb_s,
                used_units=row.units,
                clock_ghz=row.peak_clock_ghz,
                l1_kib=row.l1_kib,
                l2_kib=row.l2_kib,
                l3_kib=row.l3_kib,
                shared_kib=row.shared_block_kib,
                units=row.units,
            )
        used = min(self.threads or row.units, row.units)
        bits = vector_bits(self.processor, self.features) or row.vector_bits
        share = used / row.units * min(1.0, (bits or 1) / (row.vector_bits or bits or 1))
        return device_numbers(
            peak_gflops=row.peaks_gflops.get("fp32", 0.0) * share,
            bandwidth_gb_s=row.bandwidth_gb_s,
            used_units=used,
            clock_ghz=row.peak_clock_ghz,
            vector_bits=bits,
            l1_kib=row.l1_kib,
            l2_kib=row.l2_kib / row.units if row.l2_kib else None,
            l3_kib=row.l3_kib,
            units=row.units,
        )

    def _of_machine(self) -> tuple[float, ...]:
        machine = self.identity
        if self.gpu or machine is None:
            bits = None if self.gpu else vector_bits(self.processor, self.features)
            return device_numbers(gpu=self.gpu, vector_bits=bits, used_units=self.threads)
        used = min(self.threads or machine.cores, machine.cores)
        bits = vector_bits(self.processor, self.features) or vector_bits("", machine.isa) or 128
        # One multiply-add per cycle; two operations with fused instructions.
        fused = 2 if bits > 128 else 1
        caches = {level: size / 1024 for level, size in machine.caches}
        return device_numbers(
            peak_gflops=used * _CLOCK_GHZ * bits / 32 * fused * 2,
            used_units=used,
            vector_bits=bits,
            l1_kib=caches.get("L1"),
            l2_kib=caches.get("L2"),
            l3_kib=caches.get("L3"),
            units=machine.cores,
        )


def _target(text: str) -> dict[str, Any]:
    """`{"kind": "llvm", "mcpu": ...}` from JSON or from `llvm -mcpu=...`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        kind, *options = text.split()[:64] or [""]
        matches = [re.fullmatch(r"-([\w-]+)=(.*)", option) for option in options]
        return {**{match[1]: match[2] for match in matches if match}, "kind": kind}
    if not isinstance(value, dict):
        return {}
    kind = value.get("kind", "")
    return {**value, "kind": kind if isinstance(kind, str) else ""}


def _machine(target: Mapping[str, Any]) -> str:
    """The architecture of the triple, or the key that selects TVM's ARM schedules."""
    triple = str(target.get("mtriple", "")).partition("-")[0]
    return triple or next((key for key in ("arm_cpu",) if key in str(target.get("keys"))), "")


def _identity(value: Any) -> DeviceIdentity | None:
    try:
        return DeviceIdentity.from_json(value)
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
