"""The hardware features of one device, and the peaks computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

#: Bits of each type with a known peak.
TYPES = {"fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8}


class Kind(StrEnum):
    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Hardware:
    """The data sheet of a device; unknown values are None, never zero.

    A unit is a core of a CPU, a multiprocessor or compute unit of a GPU. The fields and their units
    are described at the top of `devices.toml`. Mappings have names in `TYPES` as keys. Raises
    ValueError for inconsistent values.
    """

    key: str
    name: str
    kind: Kind
    vendor: str
    architecture: str
    source: str
    units: int
    aliases: tuple[str, ...] = ()
    isa: tuple[str, ...] = ()
    threads: int | None = None
    clock_ghz: float | None = None
    boost_ghz: float | None = None
    vector_bits: int | None = None
    fma_units: int | None = None
    vector_types: tuple[str, ...] = ()
    fma_per_clock: Mapping[str, float] = field(default_factory=dict, hash=False)
    tensor_fma_per_clock: Mapping[str, float] = field(default_factory=dict, hash=False)
    peak_gflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    tensor_gflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    bandwidth_gb_s: float | None = None
    memory_gb: float | None = None
    l1_kib: float | None = None
    l2_kib: float | None = None
    l3_kib: float | None = None
    shared_block_kib: float | None = None
    shared_unit_kib: float | None = None
    registers_unit: int | None = None
    warp_size: int | None = None
    tdp_w: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Kind(self.kind))
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Mapping):
                _check_types(each.name, value)
                for type_name, number in value.items():
                    _check_positive(f"{each.name} of {type_name}", number)
                object.__setattr__(self, each.name, MappingProxyType(dict(value)))
            elif isinstance(value, (int, float)):
                _check_positive(each.name, value)
        _check_types("vector_types", self.vector_types)
        for required in ("key", "name", "source"):
            if not getattr(self, required):
                raise ValueError(f"{required} is empty")
        if self.threads is not None and self.threads < self.units:
            raise ValueError(f"{self.threads} threads on {self.units} units")
        if self.clock_ghz and self.boost_ghz and self.boost_ghz < self.clock_ghz:
            raise ValueError(f"boost {self.boost_ghz} GHz is below {self.clock_ghz} GHz")

    @property
    def peak_clock_ghz(self) -> float | None:
        """The clock for computing peaks: the base clock of a CPU, which all cores sustain under
        vector load, or the boost clock of a GPU, as vendors do."""
        return self.clock_ghz if self.kind is Kind.CPU else self.boost_ghz

    @property
    def peaks_gflops(self) -> dict[str, float]:
        """Peak GFLOP/s (GOP/s) by type, without tensor units: stated by the vendor, else computed
        as units x clock x multiply-adds in each cycle x 2."""
        return {**self._computed(self._vector_fma()), **self.peak_gflops}

    @property
    def tensor_peaks_gflops(self) -> dict[str, float]:
        """The same for tensor units, dense."""
        return {**self._computed(self.tensor_fma_per_clock), **self.tensor_gflops}

    @property
    def computed_types(self) -> tuple[str, ...]:
        """Types whose peak without tensor units is computed instead of stated."""
        return tuple(name for name in self.peaks_gflops if name not in self.peak_gflops)

    @property
    def computed_tensor_types(self) -> tuple[str, ...]:
        return tuple(name for name in self.tensor_peaks_gflops if name not in self.tensor_gflops)

    def numbers(self) -> dict[str, float | None]:
        """The features for cost models, with equal names for all devices."""
        plain = (
            "units", "threads", "clock_ghz", "boost_ghz", "vector_bits", "fma_units",
            "bandwidth_gb_s", "memory_gb", "l1_kib", "l2_kib", "l3_kib", "shared_block_kib",
            "shared_unit_kib", "registers_unit", "warp_size", "tdp_w",
        )  # fmt: skip
        features: dict[str, float | None] = {name: getattr(self, name) for name in plain}
        for prefix, peaks in (
            ("peak", self.peaks_gflops),
            ("tensor", self.tensor_peaks_gflops),
        ):
            features |= {f"{prefix}_{name}_gflops": peaks.get(name) for name in TYPES}
        return features

    def to_json(self) -> dict[str, Any]:
        """All fields, including peaks."""
        facts: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            facts[each.name] = dict(value) if isinstance(value, Mapping) else value
        return {
            **facts,
            "peaks_gflops": self.peaks_gflops,
            "computed_types": self.computed_types,
            "tensor_peaks_gflops": self.tensor_peaks_gflops,
            "computed_tensor_types": self.computed_tensor_types,
        }

    def _vector_fma(self) -> Mapping[str, float]:
        if not (self.vector_bits and self.fma_units):
            return self.fma_per_clock
        wide = self.vector_bits * self.fma_units
        return {name: wide / TYPES[name] for name in self.vector_types} | dict(self.fma_per_clock)

    def _computed(self, fma_per_clock: Mapping[str, float]) -> dict[str, float]:
        clock = self.peak_clock_ghz
        if clock is None:
            return {}
        return {name: self.units * clock * fma * 2 for name, fma in fma_per_clock.items()}


def _check_types(name: str, values: Any) -> None:
    unknown = [value for value in values if value not in TYPES]
    if unknown:
        raise ValueError(f"{name} names {unknown[0]!r}, not one of {', '.join(TYPES)}")


def _check_positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}, not a positive number")
