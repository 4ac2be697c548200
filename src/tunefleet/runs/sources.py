"""A network before its import, from what the user names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tunefleet.core.home import Home
from tunefleet.core.importing import ImportOptions, NetworkSource
from tunefleet.core.precision import FLOAT32, FLOATS, INT8
from tunefleet.errors import InputError
from tunefleet.runs.context import BenchmarkContext


def source_of(
    spec: str | Path,
    options: ImportOptions,
    context: BenchmarkContext,
    precision: str = FLOAT32,
    calibrate: str | Path | None = None,
) -> NetworkSource:
    """A network before its import, in a precision: in int8 it is an ONNX file below home, which is
    made first, in a process of its own. Raises InputError for a network that is not there or cannot
    be had so, SetupError where the quantiser is not installed."""
    from tunefleet.compiler.frontends.spec import (
        check_precision,
        in_floats,
        is_zoo,
        network_digest,
        network_name,
        wanted_precision,
    )

    text = str(spec)
    if "\0" in text:
        raise InputError(f"{text!r} is no path", cure="leave out its NUL characters")
    wanted = wanted_precision(text, precision)
    if calibrate is not None and wanted != INT8:
        raise InputError(
            f"there is nothing to calibrate in {wanted}", cure=f"write --precision {INT8}"
        )
    of_products = ""
    if wanted == INT8:
        text = _quantised(text, context, calibrate)
    elif wanted in FLOATS:
        check_precision(wanted, context.target)
        text, of_products = in_floats(text), f"-{wanted}"
        options = replace(options, precision=wanted)
    # Found again from another folder, to be measured beside its artifact.
    place = text if is_zoo(text) else str(Path(text).resolve())
    name = network_name(text) + of_products
    return NetworkSource(place, name, network_digest(text), options)


def _quantised(text: str, context: BenchmarkContext, calibrate: str | Path | None) -> str:
    from tunefleet.compiler.frontends.spec import in_floats
    from tunefleet.compiler.quantize import quantized_file
    from tunefleet.workers.apart import call_apart

    data = None if calibrate is None else Path(calibrate).resolve()
    folder = context.created(Home(context.home).quantized)
    plain = in_floats(text)
    # It keeps the outputs of all layers for each sample: the network's size says nothing of it.
    return str(call_apart(f"quantising {plain}", quantized_file, plain, data, folder))
