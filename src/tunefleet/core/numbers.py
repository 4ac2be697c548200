"""Converts a user's numbers to Python's own types, so that the store returns equal values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import fields
from typing import Any

#: Limit of all counts; the libraries below count in 32 bits.
MOST = 10**9
#: Limit of all durations: a year. Python's own waiting functions fail for longer ones.
MOST_SECONDS = 366 * 24 * 3600.0


def whole(name: str, given: Any) -> int:
    """An integer, also of NumPy. Raises ValueError for anything else, also for 1e3."""
    try:
        return operator.index(given)
    except TypeError as error:
        raise ValueError(f"{name} is {given!r}, not a whole number") from error


def count(name: str, given: Any, least: int = 1) -> int:
    """An integer of at least `least`. Raises ValueError."""
    number = whole(name, given)
    if number < least:
        wanted = "a positive number" if least == 1 else f"{least} or more"
        raise ValueError(f"{name} is {number}, not {wanted}")
    if number > MOST:
        raise ValueError(f"{name} is {number}, more than a billion")
    return number


def real(name: str, given: Any) -> float:
    """A finite float, also of NumPy. Raises ValueError for anything else, also for a text."""
    try:
        if isinstance(given, str | bytes):
            raise TypeError
        number = float(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is {given!r}, not a number") from error
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}, not a finite number")
    return number


def number(name: str, given: Any) -> float:
    """A finite number. An integer stays an integer: it may have more digits than a float. Raises
    ValueError."""
    try:
        return operator.index(given)
    except TypeError:
        return real(name, given)


def positive(name: str, given: Any) -> float:
    """A finite number above 0. Raises ValueError."""
    number = real(name, given)
    if number <= 0:
        raise ValueError(f"{name} is {number:g}, not a positive number")
    return number


def duration(name: str, given: Any) -> float:
    """A number of seconds to wait. Raises ValueError."""
    seconds = positive(name, given)
    if seconds > MOST_SECONDS:
        raise ValueError(f"{name} is {seconds:g}, more than a year")
    return seconds


def _is(kind: type) -> Callable[[str, Any], Any]:
    def check(name: str, given: Any) -> Any:
        if not isinstance(given, kind):
            raise ValueError(f"{name} is {given!r}, not a {kind.__name__}")
        return given

    return check


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "int": whole,
    "float": real,
    "bool": _is(bool),
    "str": _is(str),
}


def make_plain(settings: Any) -> None:
    """Convert each field of a frozen dataclass to its declared type. Raises ValueError for a field
    of another type."""
    for field in fields(settings):
        check = _CHECKS.get(str(field.type))
        if check is not None:
            given = getattr(settings, field.name)
            object.__setattr__(settings, field.name, check(field.name, given))
