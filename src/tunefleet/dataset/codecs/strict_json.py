"""JSON as the standard has it: the standard library's parser takes more than that."""

from __future__ import annotations

import json
from typing import Any

from tunefleet.dataset.codecs.codec import LineError

TOO_DEEP = "not a record: nested too deeply"
#: What JSON takes for space.
_SPACES = " \t\r\n"


def loads(line: bytes) -> Any:
    """The value of a line; LineError for anything that JSON does not define one value for."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise LineError(f"not UTF-8 at byte {error.start}") from error
    if "\0" in text:
        raise LineError(f"a NUL byte at {text.index(chr(0))}")
    value, end = _loaded(_decoder, text.strip(_SPACES), 0)
    if end < len(text.strip(_SPACES)):
        raise LineError(f"not JSON: more than one value, at character {end}")
    return value


def loads_first(text: str, at: int) -> tuple[Any, int]:
    """The value that begins in a text, and where it ends; raises LineError.

    NaN and Infinity are taken, or all that follows would be lost with them.
    """
    return _loaded(_taking_constants, text, at)


def _loaded(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise LineError(f"not JSON: {error.msg} at character {error.pos - at}") from error
    except RecursionError as error:
        raise LineError(TOO_DEEP) from error
    except LineError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise LineError(f"not JSON: {error}") from error
    if "\\u" in text[at:end]:
        _check_text(value)
    return value, end


def dumps(value: Any) -> str:
    """`value` as JSON without spaces; LineError for infinities, which `loads` makes of 1e999."""
    try:
        return _encoder.encode(value)
    except ValueError as error:
        raise LineError("a number is out of range") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise LineError(f"the key {twice!r} is there twice")
    return value


def _refuse(constant: str) -> Any:
    raise LineError(f"not JSON: {constant}")


def _check_text(value: Any) -> None:
    """Half a surrogate pair can be escaped in JSON, but is no text."""
    try:
        dumps(value).encode()
    except UnicodeEncodeError as error:
        raise LineError("half a surrogate pair in a text") from error


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_taking_constants = json.JSONDecoder(object_pairs_hook=_distinct)
_decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse)
