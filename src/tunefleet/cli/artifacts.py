"""Commands on an artifact: run it, measure it, read its report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.core.home import Home, default_home
from tunefleet.core.ids import digest
from tunefleet.errors import InputError, foreign, raise_mistake
from tunefleet.system.files import check_regular

if TYPE_CHECKING:
    import numpy as np

    from tunefleet.core.result import Evaluation
    from tunefleet.core.statistics import Interval

#: Values of each output that are printed.
_TOP = 5


def run(
    artifact: options.Artifact,
    input: Annotated[
        list[str],
        typer.Option(metavar="X.npy", help="One input; repeat in the order of the network."),
    ],
    output_path: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.npy",
            callback=parsing.writable,
            help="Where the output goes; several become OUT-0.npy, OUT-1.npy, ...",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(metavar="N", callback=parsing.positive, help="Also time N calls."),
    ] = None,
    require_signed: options.RequireSigned = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Run a tuned network on arrays in .npy files.

    It prints the largest values of each output. Inputs of another type are cast where no value is
    lost; float64 may be rounded to float32.
    """
    arrays = [read_array(Path(path)) for path in input]
    from tunefleet.artifacts.casting import cast_inputs
    from tunefleet.artifacts.opening import load

    with load(artifact, home=home, signed_by=require_signed) as module:
        cast, notes = cast_inputs(arrays, module.signatures)
        for note in notes:
            typer.echo(f"note: {note}", err=True)
        outputs = module.run(cast)
        names = [spec.name for spec in module.signatures[0].outputs]
        latency = None
        if repeat is not None:
            content = digest([repeat, *(digest(array.tobytes()) for array in cast)])
            latency = _alone(
                artifact, home, content, partial(_timed, lambda: module.run(cast), repeat)
            )
    paths = _save(outputs, Path(output_path)) if output_path else [None] * len(outputs)
    described = [_described(*each) for each in zip(names, outputs, paths, strict=True)]
    value = {
        "artifact": artifact,
        "casts": notes,
        "outputs": described,
        "latency_ms": None if latency is None else latency.scaled(1e3).to_json(),
        "repeats": repeat,
    }
    output.tell(json, value, lambda: _show(described, latency, repeat))


def _alone(
    artifact: str, home: Path | None, content: str, timed: Callable[[], Interval]
) -> Interval:
    """What is `timed` while no command of the home measures. Without a home there is none."""
    at_home = home or default_home()
    if not Home(at_home).store.is_file():
        return timed()
    from tunefleet.runs.errands import timed_run

    return timed_run(artifact, at_home, content, timed, _say)


def _say(text: str) -> None:
    output.console(stderr=True).print(text, soft_wrap=True, markup=False)


def _timed(call: Callable[[], object], repeat: int) -> Interval:
    """Seconds of a call, the median of so many with its 95 % interval; one call came before."""
    from tunefleet.core.statistics import interval

    seconds = []
    for _ in range(repeat):
        clock = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - clock)
    return interval(seconds)


def _show(described: list[dict[str, Any]], latency: Interval | None, repeat: int | None) -> None:
    for item in described:
        shape = ", ".join(map(str, item["shape"]))
        line = f"{item['name']}: {item['dtype']}[{shape}]"
        if item["min"] is not None:
            line += f", from {item['min']:.6g} to {item['max']:.6g}"
        typer.echo(line + (f", written to {item['path']}" if item["path"] else ""))
        for top in item["top"]:
            typer.echo(f"  [{', '.join(map(str, top['index']))}]  {top['value']:.6g}")
    if latency is not None:
        from tunefleet.report.units import format_latency

        median, low, high = map(format_latency, (latency.median, latency.low, latency.high))
        calls = f"{repeat} call{'' if repeat == 1 else 's'}"
        typer.echo(f"latency {median} ({low} to {high}), the median of {calls}")


def evaluate(
    artifact: options.Artifact,
    rounds: Annotated[
        int, typer.Option(metavar="N", callback=parsing.positive, help="Rounds of measuring.")
    ] = 12,
    require_signed: options.RequireSigned = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Measure a tuned network again, beside its source framework."""
    from tunefleet.runs.errands import evaluate_artifact

    result = evaluate_artifact(artifact, home, rounds, require_signed, _say)
    output.tell(json, result.to_dict(), lambda: _show_evaluation(result))


def _show_evaluation(result: Evaluation) -> None:
    from tunefleet.report.text import evaluation_table, kernels_table

    console = output.console()
    if result.kernels:
        console.print(kernels_table(result))
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True, markup=False)
    console.print(evaluation_table(result))
    places = {"report": "the report of the artifact", "jobs": "`tunefleet jobs`"}
    if result.filled_in:
        console.print(f"now in {' and in '.join(places[each] for each in result.filled_in)}")


def report(
    artifact: options.Artifact,
    open_path: Annotated[
        bool, typer.Option("--open-path", help="Print only the path of the HTML report.")
    ] = False,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Show the report of a tuned network and the path of its page."""
    from tunefleet.artifacts.opening import open_artifact

    # Read anywhere, also where the artifact's code cannot run.
    opened = open_artifact(artifact, home)
    page = opened.report
    if open_path:
        typer.echo(str(page))
        return
    from tunefleet.cli.summary import show
    from tunefleet.report.result import read_result

    written = read_result(opened.result, str(opened.manifest))
    # Where it lies now, not where it was written: an artifact may have been moved.
    result = replace(written, artifact=str(opened.path), report=str(page))
    output.tell(json, result.to_dict(), lambda: show(result, tasks=None))


def sign(
    artifact: options.Artifact,
    key: Annotated[
        Path, typer.Option(metavar="KEY.pem", help="Your private Ed25519 key.", show_default=False)
    ],
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Sign a tuned network with your private key."""
    from tunefleet.artifacts import signature
    from tunefleet.artifacts.artifact import check_all_files
    from tunefleet.artifacts.opening import open_artifact

    opened = open_artifact(artifact, home)
    check_all_files(opened)  # it answers for all of them
    signed = str(signature.sign(opened.manifest, key))
    value = {"artifact": str(opened.path), "signature": signed}
    output.tell(json, value, lambda: typer.echo(signed))


def read_array(path: Path) -> np.ndarray[Any, Any]:
    """The array of a .npy file, read without unpickling anything. Raises InputError."""
    import numpy as np

    cure = "give a file that numpy.save wrote"
    check_regular(path)
    try:
        with foreign():
            array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"no input file {path}", cure=cure) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot read input {path}: {reason}", cure=cure) from error
    except Exception as error:  # NumPy reads the header as Python reads source
        raise_mistake(error)
        raise InputError(f"{path} is not a .npy file of numbers", cure=cure) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is an .npz archive", cure="save each array with numpy.save")
    return array


def _save(outputs: list[Any], path: Path) -> list[str]:
    import numpy as np

    paths = [path]
    if len(outputs) > 1:
        paths = [path.with_name(f"{path.stem}-{i}{path.suffix}") for i in range(len(outputs))]
    try:
        for array, place in zip(outputs, paths, strict=True):
            with place.open("wb") as file:
                np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", cure="choose another --output"
        ) from error
    return [str(p) for p in paths]


def _described(name: str, array: Any, path: str | None) -> dict[str, Any]:
    numbers = array.size > 0 and array.dtype.kind in "biuf"
    return {
        "name": name,
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "min": float(array.min()) if numbers else None,
        "max": float(array.max()) if numbers else None,
        "top": _top(array) if numbers else [],
        "path": path,
    }


def _top(array: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """The largest values with their indices; of equals the first, and no NaN."""
    import numpy as np

    flat = array.reshape(-1)
    numbers = np.flatnonzero(~np.isnan(flat)) if array.dtype.kind == "f" else np.arange(flat.size)
    values = flat[numbers].astype(np.float64)
    # Only what may be among them is sorted: an output may have millions.
    least = np.partition(values, -_TOP)[-_TOP] if values.size > _TOP else -np.inf
    near = np.flatnonzero(values >= least)
    largest = numbers[near[np.argsort(-values[near], kind="stable")[:_TOP]]]
    return [
        {"index": [int(i) for i in np.unravel_index(at, array.shape)], "value": flat[at].item()}
        for at in largest
    ]
