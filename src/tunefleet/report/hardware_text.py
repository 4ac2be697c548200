"""The device table, and one device of it, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.hardware import Hardware, Kind
from tunefleet.report.grid import Grid
from tunefleet.report.palette import short
from tunefleet.report.text import pairs
from tunefleet.report.units import UNKNOWN, format_bytes, format_count, format_gflops, significant


def hardware_table(rows: Iterable[Hardware]) -> Table:
    """A row per device, its peaks in TFLOP/s; of tensor units that of fp16."""
    table = Grid()
    table.add_column("device", no_wrap=True)
    table.add_column("name", no_wrap=True)
    table.add_column("architecture", no_wrap=True)
    for heading in ("units", "fp64", "fp32", "fp16", "tensor", "GB/s", "L2"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        peaks = row.peaks_gflops
        table.add_row(
            Text(row.key),
            Text(short(row.name, 29)),
            Text(short(row.architecture, 15)),
            str(row.units),
            *(_tera(peaks.get(name)) for name in ("fp64", "fp32", "fp16")),
            _tera(row.tensor_peaks_gflops.get("fp16")),
            _number(row.bandwidth_gb_s),
            _kib(row.l2_kib),
        )
    return table


def hardware_pairs(row: Hardware) -> Table:
    """All that is known of a device; what is not is left out."""
    cpu = row.kind is Kind.CPU
    clock = f"{row.peak_clock_ghz:g} GHz" if row.peak_clock_ghz else ""
    named = [
        ("device", row.key),
        ("name", row.name),
        ("also", ", ".join(row.aliases)),
        ("kind", f"{row.kind}, {row.vendor} {row.architecture}"),
        ("ISA", ", ".join(row.isa)),
        ("cores" if cpu else "units", str(row.units)),
        ("threads", _known(row.threads, format_count)),
        ("clock", _known(row.clock_ghz, lambda v: f"{v:g} GHz")),
        ("boost", _known(row.boost_ghz, lambda v: f"{v:g} GHz")),
        ("vector units", _vector_text(row)),
        ("peak", _peaks_text(row.peaks_gflops, row.computed_types)),
        ("tensor units", _peaks_text(row.tensor_peaks_gflops, row.computed_tensor_types)),
        ("", f"* computed: units x {clock} x multiply-adds in each cycle x 2" if clock else ""),
        ("bandwidth", _known(row.bandwidth_gb_s, lambda v: f"{v:g} GB/s")),
        ("memory", _known(row.memory_gb, lambda v: f"{v:g} GB")),
        ("L1", _known(row.l1_kib, lambda v: f"{_kib(v)} each")),
        ("L2", _known(row.l2_kib, _kib)),
        ("L3", _known(row.l3_kib, _kib)),
        ("shared memory", _shared_text(row)),
        ("registers", _known(row.registers_unit, lambda v: f"{v:,} each")),
        ("warp", _known(row.warp_size, lambda v: f"{v} threads")),
        ("power", _known(row.tdp_w, lambda v: f"{v:g} W")),
        ("note", row.note),
        ("source", row.source),
    ]
    return pairs([(name, text) for name, text in named if text])


def _peaks_text(peaks: Mapping[str, float], computed: tuple[str, ...]) -> str:
    parts = [
        f"{name} {format_gflops(value)}{'*' if name in computed else ''}"
        for name, value in peaks.items()
    ]
    return f"{', '.join(parts)} GFLOP/s" if parts else ""


def _vector_text(row: Hardware) -> str:
    if not (row.vector_bits and row.fma_units):
        return ""
    return f"{row.fma_units} of {row.vector_bits} bits in each core"


def _shared_text(row: Hardware) -> str:
    parts = [
        f"{_kib(value)} {what}"
        for value, what in ((row.shared_block_kib, "a block"), (row.shared_unit_kib, "each"))
        if value
    ]
    return ", ".join(parts)


def _known(value: Any, text: Callable[[Any], str]) -> str:
    return "" if value is None else text(value)


def _tera(gflops: float | None) -> str:
    return UNKNOWN if gflops is None else significant(gflops / 1e3)


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4g}"


def _kib(value: float | None) -> str:
    return UNKNOWN if value is None else format_bytes(value * 1024)
