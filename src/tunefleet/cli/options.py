"""The options that commands share, each declared and checked once.

The only place where an environment variable is read (`HOME_VARIABLE`).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tunefleet.core.layout import parse_cores
from tunefleet.core.numbers import MOST, MOST_SECONDS
from tunefleet.core.settings import COST_MODELS
from tunefleet.errors import InputError
from tunefleet.scheduler.names import POLICY_NAMES

HOME_VARIABLE = "TUNEFLEET_HOME"

STDOUT = "-"


def positive(value: Any) -> Any:
    """Refuse what is not a positive, finite number, and counts that nobody means."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"{value} is not a positive number")
    if isinstance(value, int) and value > MOST:
        raise typer.BadParameter(f"{value} is more than a billion")
    return value


def minutes(value: float | None) -> float | None:
    """Refuse what is no time that anybody waits."""
    checked: float | None = positive(value)
    if checked is not None and checked * 60 > MOST_SECONDS:
        raise typer.BadParameter(f"{checked:g} minutes are more than a year")
    return checked


def not_negative(value: Any) -> Any:
    """Refuse a negative number, and what is none: nothing is more than NaN. None stays None."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter(f"{value} is not a number")
    if value is not None and value < 0:
        raise typer.BadParameter(f"{value} is negative")
    return value


def cost_model(value: str) -> str:
    """Refuse a cost model that does not exist."""
    return one_of(COST_MODELS, value, "cost model")


def policy(value: str) -> str:
    """Refuse a policy that does not exist."""
    return one_of(POLICY_NAMES, value, "policy")


def one_of(names: Sequence[str], value: str, what: str) -> str:
    """Refuse what is none of some names; `what` is what they are names of."""
    if value not in names:
        choice = " or ".join([", ".join(names[:-1]), names[-1]])
        raise typer.BadParameter(f"{value!r} is not a {what}, choose {choice}")
    return value


def different(value: list[str]) -> list[str]:
    """Refuse a network that is named twice: both would be the same job."""
    twice = [name for name, count in Counter(value).items() if count > 1]
    if twice:
        raise typer.BadParameter(f"{twice[0]} is given twice")
    return value


def cores(value: str | None) -> str | None:
    """Refuse what is not a list of cores; whether they are usable is known later."""
    if value is not None:
        try:
            parse_cores(value)
        except InputError as error:
            raise typer.BadParameter(str(error)) from error
    return value


def core_numbers(value: str | None) -> tuple[int, ...] | None:
    """The cores that an option named, or None."""
    return None if value is None else parse_cores(value)


def shapes(value: list[str] | None) -> list[str] | None:
    """Refuse what is not a name and extents."""
    for text in value or ():
        _named_numbers(text, "x=1,3,224,224")
    return value


def dims(value: list[str] | None) -> list[str] | None:
    """Refuse what is not a name and values."""
    for text in value or ():
        if not _named_numbers(text, "width=320")[1]:
            raise typer.BadParameter(f"{text!r} has no value, such as width=320")
    return value


def constants(value: list[str] | None) -> list[str] | None:
    """Refuse what is not a name and numbers, and a name that comes again."""
    names = [_named_values(text)[0] for text in value or ()]
    for name in names:
        if names.count(name) > 1:
            raise typer.BadParameter(f"{name} is given twice")
    return value


def by_constant(value: list[str] | None) -> dict[str, list[float]]:
    """The values that were given, by input."""
    return dict(_named_values(text) for text in value or ())


def _named_values(text: str) -> tuple[str, list[float]]:
    name, _, numbers = text.rpartition("=")
    try:
        values = [_number(number) for number in numbers.split(",")]
    except ValueError:
        values = []
    if not name or not values:
        raise typer.BadParameter(f"{text!r} is not a name and numbers, such as sr=16000")
    return name, values


def _number(text: str) -> float:
    """A whole number stays one: an index may have more digits than a float."""
    truth = {"true": 1, "false": 0}.get(text.strip().lower())
    if truth is not None:
        return truth
    try:
        return int(text)
    except ValueError:
        return float(text)


def _named_numbers(text: str, example: str) -> tuple[str, tuple[int, ...]]:
    name, equals, numbers = text.rpartition("=")
    try:
        values = tuple(map(int, numbers.split(","))) if numbers.strip() else ()
    except ValueError:
        values = (-1,)
    if not name or not equals or any(number < 0 for number in values):
        raise typer.BadParameter(f"{text!r} is not a name and numbers, such as {example}")
    return name, values


def by_input(value: list[str] | None) -> dict[str, list[tuple[int, ...]]]:
    """The shapes that were given, by input."""
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for text in value or ():
        name, extents = _named_numbers(text, "")
        by_name.setdefault(name, []).append(extents)
    return by_name


def by_dimension(value: list[str] | None) -> dict[str, list[int]]:
    """The values that were given, by dimension."""
    by_name: dict[str, list[int]] = {}
    for text in value or ():
        name, values = _named_numbers(text, "")
        by_name.setdefault(name, []).extend(values)
    return by_name


def directory(value: Path | None) -> Path | None:
    """Refuse a file where a directory is meant."""
    if value is not None and value.exists() and not value.is_dir():
        raise typer.BadParameter(f"{value} is a file, not a directory")
    return value


def _home(context: typer.Context, value: Path | None) -> Path | None:
    """As `directory`; a bug is reported below it."""
    home = directory(value)
    if context.obj is not None:
        context.obj.home = home
    return home


def writable(value: str | None) -> str | None:
    """Refuse a path that could not be written later; `-` is the standard output."""
    if value is None or value == STDOUT:
        return value
    path = Path(value)
    if path.is_dir():
        raise typer.BadParameter(f"{value} is a directory")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the directory {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{value} cannot be written")
    return value


def _ask_for_traceback(context: typer.Context, value: bool) -> None:
    if value and context.obj is not None:
        context.obj.traceback = True


Network = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="An .onnx or .pt2 file, or a network of the zoo: zoo:resnet50?batch=4.",
        show_default=False,
    ),
]
Networks = Annotated[
    list[str],
    typer.Argument(
        metavar="NETWORK...",
        callback=different,
        help="One network or several: .onnx or .pt2 files, or networks of the zoo: "
        "zoo:resnet50?batch=4.",
        show_default=False,
    ),
]
RequireSigned = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY.pub", help="Refuse an artifact that the owner of this key did not sign."
    ),
]
Artifact = Annotated[
    str,
    typer.Argument(
        metavar="ARTIFACT", help="A directory that tune wrote, or its run id.", show_default=False
    ),
]
Target = Annotated[
    str,
    # Named: some versions of typer take the case of a metavar that is the name.
    typer.Option(
        "--target", metavar="TARGET", help="A TVM target; native is this machine's processor."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        callback=positive,
        help="Threads that the code will use; the default is one per physical core.",
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=N,N,...",
        callback=shapes,
        help="The shape of an input; repeat for others, or for more shapes of one.",
    ),
]
Dim = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=N[,N...]",
        callback=dims,
        help="The value of a free dimension; several make one artifact that takes all of them.",
    ),
]
Constant = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        metavar="INPUT=V[,V...]",
        callback=constants,
        help="An input that always has this value: the network is tuned without it.",
    ),
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole",
        help="Refuse a network of which a part would stay in its source framework.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Read files whose content is run as code by reading it: pickle in a .pt2 file.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="float32|bf16|int8",
        help="float32 is a network as it is; bf16 computes products in bfloat16; int8 quantises "
        "ONNX files and networks of the zoo.",
    ),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        metavar="DATA",
        help="Inputs to quantise an ONNX file with: a .npz or .npy file, or a folder of them.",
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        metavar="|".join(POLICY_NAMES),
        callback=policy,
        help="Which ready stage starts on a free resource.",
    ),
]
LookAhead = Annotated[
    bool | None,
    typer.Option(
        "--look-ahead/--no-look-ahead",
        help="Let an idle host select and build a task's next batch before the last one is"
        " measured; predictive does.",
        show_default=False,
    ),
]
HostCores = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        callback=cores,
        help="Cores that select, build and learn, such as 0,2-3; the default is those that the "
        "device leaves.",
    ),
]
DeviceCores = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        callback=cores,
        help="Cores that measure; the default is all, or the last N with --threads N.",
    ),
]
Home = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar=HOME_VARIABLE,
        is_eager=True,
        callback=_home,
        help="Where records and artifacts are kept.",
    ),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Measure on this device of `tunefleet devices` instead of this machine; given again: "
        "on all of them at once. `local` is this machine.",
    ),
]
DeviceKind = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="Measure on all devices of a kind: cpu, or the name of their hardware.",
    ),
]
DeviceKey = Annotated[
    str, typer.Option(metavar="KEY", help="Your name for the device: records stay apart by it.")
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="OUT",
        callback=writable,
        help="Also write it all as JSON; - is stdout, and then nothing else goes there.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, only warnings and the result.")]
Traceback = Annotated[
    bool,
    typer.Option(
        "--traceback",
        is_eager=True,
        callback=_ask_for_traceback,
        help="Show where an error comes from.",
    ),
]
