"""An artifact called on arrays of files: what it gives, described, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.ids import digest
from tunefleet.core.statistics import Interval, interval
from tunefleet.errors import InputError, foreign, raise_mistake
from tunefleet.system.files import check_regular

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

#: Values of an output that are shown.
_TOP = 5

#: Times a call while nothing else is measured, given what the call is known by.
TimedCall = Callable[[str, Callable[[], Interval]], Interval]


def _unheard(text: str) -> None:
    """Nobody reads what was cast here; the answer has it."""


def _at_once(content: str, timed: Callable[[], Interval]) -> Interval:
    return timed()


def call_artifact(
    artifact: str | Path,
    inputs: Sequence[Path],
    *,
    repeat: int | None = None,
    save: Callable[[Sequence[Any]], Sequence[str | None]] | None = None,
    home: Path | None = None,
    signed_by: Path | None = None,
    heard: Callable[[str], None] = _unheard,
    alone: TimedCall = _at_once,
) -> dict[str, Any]:
    """Outputs of an artifact for `.npy` files in the order of its inputs, as one JSON value: names,
    shapes, types and largest values. With `repeat` the latency of so many calls too, in ms.

    `save` keeps the outputs and says where each is; `heard` is told what was cast. Raises
    InputError for files that are no arrays, and for inputs that the network does not take.
    """
    arrays = [read_array(path) for path in inputs]
    from tunefleet.artifacts.casting import cast_inputs
    from tunefleet.artifacts.opening import load

    with load(artifact, home=home, signed_by=signed_by) as module:
        cast, notes = cast_inputs(arrays, module.signatures)
        for note in notes:
            heard(note)
        outputs = module.run(cast)
        names = [spec.name for spec in module.signatures[0].outputs]
        latency = None
        if repeat is not None:
            content = digest([repeat, *(digest(array.tobytes()) for array in cast)])
            latency = alone(content, partial(_timed, lambda: module.run(cast), repeat))
    paths = save(outputs) if save is not None else [None] * len(outputs)
    return {
        "artifact": str(artifact),
        "casts": notes,
        "outputs": [_described(*each) for each in zip(names, outputs, paths, strict=True)],
        "latency_ms": None if latency is None else latency.scaled(1e3).to_json(),
        "repeats": repeat,
    }


def save_outputs(outputs: Sequence[Any], path: Path) -> list[str]:
    """Write outputs as `.npy` files at their `output_paths`. Raises InputError."""
    import numpy as np

    paths = output_paths(path, len(outputs))
    try:
        for array, place in zip(outputs, paths, strict=True):
            with place.open("wb") as file:
                np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", cure="choose another --output"
        ) from error
    return [str(p) for p in paths]


def output_paths(path: Path, count: int) -> list[Path]:
    """The files of outputs: `path` for one, numbered names in the same folder for several."""
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(count)]


def read_array(path: Path) -> Array:
    """The array of a .npy file, read without unpickling anything. Raises InputError."""
    import numpy as np

    cure = "give a file that numpy.save wrote"
    check_regular(path)
    try:
        with foreign(), path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
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


def _timed(call: Callable[[], object], repeat: int) -> Interval:
    """Seconds of a call, the median of so many with its 95 % interval; one call came before."""
    seconds = []
    for _ in range(repeat):
        clock = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - clock)
    return interval(seconds)


def _described(name: str, array: Array, path: str | None) -> dict[str, Any]:
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


def _top(array: Array) -> list[dict[str, Any]]:
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
