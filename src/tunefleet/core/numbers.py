"""Numbers that a user gives, as Python's own: the store reads them again as what they were."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import fields
from typing import Any

#: Of anything that is counted; libraries below count in 32 bits.
MOST = 10**9
#: Of what somebody waits for: a year. Who waits for longer is told by Python that it cannot be.
MOST_SECONDS = 366 * 24 * 3600.0


def whole(name: str, given: Any) -> int:
    """A whole number, also one of NumPy's. Raises ValueError for any other: 1e3 is none."""
    try:
        return operator.index(given)
    except TypeError as error:
        raise ValueError(f"{name} is {given!r}, not a whole number") from error


def count(name: str, given: Any, least: int = 1) -> int:
    """So many of something. Raises ValueError."""
    number = whole(name, given)
    if number < least:
        wanted = "a positive number" if least == 1 else f"{least} or more"
        raise ValueError(f"{name} is {number}, not {wanted}")
    if number > MOST:
        raise ValueError(f"{name} is {number}, more than a billion")
    return number


def real(name: str, given: Any) -> float:
    """A finite number, also one of NumPy's. Raises ValueError for any other: texts are none."""
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
    """A finite number; a whole one stays one, since it may have more digits than a float. Raises
    ValueError."""
    try:
        return operator.index(given)
    except TypeError:
        return real(name, given)


def positive(name: str, given: Any) -> float:
    """Raises ValueError for what is no finite number above 0."""
    number = real(name, given)
    if number <= 0:
        raise ValueError(f"{name} is {number:g}, not a positive number")
    return number


def duration(name: str, given: Any) -> float:
    """Seconds that somebody waits. Raises ValueError."""
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
    """Make each field of a frozen dataclass of the type that it declares. Raises ValueError for one
    that is of another."""
    for field in fields(settings):
        check = _CHECKS.get(str(field.type))
        if check is not None:
            given = getattr(settings, field.name)
            object.__setattr__(settings, field.name, check(field.name, given))
