"""Values of options as people write them: read, or refused with a reason."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import typer

from tunefleet.core.layout import parse_cores
from tunefleet.core.numbers import MOST, MOST_SECONDS
from tunefleet.core.settings import COST_MODELS
from tunefleet.errors import InputError
from tunefleet.scheduler.names import POLICY_NAMES

STDOUT = "-"

N = TypeVar("N", int, float)


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


def deadlines(value: list[str] | None) -> list[str] | None:
    """Refuse what is no time from now."""
    for text in value or ():
        minutes(_last_number(text, float, "M or NETWORK=M, such as 90"))
    return value


def priorities(value: list[str] | None) -> list[str] | None:
    """Refuse what is no whole number."""
    for text in value or ():
        _last_number(text, int, "N or NETWORK=N, such as 1")
    return value


def by_network(
    option: str, value: list[str] | None, networks: Sequence[str], number: Callable[[str], N]
) -> dict[str, N]:
    """The numbers that were given, by network; one without a network counts for all others."""
    of_all: dict[str, N] = {}
    named: dict[str, N] = {}
    for text in value or ():
        network, equals, last = text.rpartition("=")
        if equals and network not in networks:
            raise typer.BadParameter(f"--{option} {text}: {network} is none of the networks")
        known = named if equals else of_all
        if network in known:
            raise typer.BadParameter(f"--{option} is given twice for {network or 'all networks'}")
        known[network] = number(last)
    return {name: of_all[""] for name in networks if of_all} | named


def _last_number(text: str, number: Callable[[str], N], form: str) -> N:
    try:
        return number(text.rpartition("=")[2])
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not {form}") from None


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
