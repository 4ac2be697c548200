"""A network before its import, from what the user names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
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
    name, content = network_name(text) + of_products, network_digest(text)
    return NetworkSource(_kept(text, content, context), name, content, _with_kept(options, context))


def _kept(text: str, content: str, context: BenchmarkContext) -> str:
    """The copy of a network's files that is read from now on, whatever becomes of them, as its path
    below home. What was made below home is one."""
    from tunefleet.compiler.frontends.keeping import kept_network
    from tunefleet.compiler.frontends.spec import is_zoo

    home = Home(context.home)
    if is_zoo(text):
        return text
    own = home.relative(str(Path(text).resolve()))
    if home.absolute(own) == own:  # it lies elsewhere
        own = home.relative(
            str(kept_network(text, content, partial(context.created, home.networks)))
        )
    return own


def _with_kept(options: ImportOptions, context: BenchmarkContext) -> ImportOptions:
    """The same with the inputs' files kept."""
    from tunefleet.compiler.frontends.keeping import kept_file

    home = Home(context.home)
    folder = partial(context.created, home.networks)
    inputs = []
    for file in options.inputs:
        own = home.relative(file.path)
        if home.absolute(own) == own:
            own = home.relative(str(kept_file(Path(file.path), file.content, folder)))
        inputs.append(replace(file, path=own))
    return replace(options, inputs=tuple(inputs))


def _quantised(text: str, context: BenchmarkContext, calibrate: str | Path | None) -> str:
    from tunefleet.compiler.frontends.spec import in_floats
    from tunefleet.compiler.quantize import quantized_file
    from tunefleet.workers.apart import call_apart

    data = None if calibrate is None else Path(calibrate).resolve()
    folder = context.created(Home(context.home).quantized)
    plain = in_floats(text)
    # It keeps the outputs of all layers for each sample: the network's size says nothing of it.
    return str(call_apart(f"quantising {plain}", quantized_file, plain, data, folder))
