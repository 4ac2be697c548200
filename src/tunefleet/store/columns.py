"""What columns of the store hold: values that are checked as they are read."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec
from sqlalchemy import Dialect, Double, Integer, LargeBinary, Text, TypeDecorator

from tunefleet.core.ids import canonical_json
from tunefleet.store.database import UnreadableError


def _only(*kinds: type) -> Any:
    """A method of a type of columns: SQLite keeps text in a column of numbers where it is told to,
    and damage can make it so."""

    def result_processor(self: Any, dialect: Dialect, coltype: Any) -> Any:
        def checked(value: Any) -> Any:
            if value is not None and type(value) not in kinds:
                raise UnreadableError(f"{str(value)[:40]!r} stands where a {kinds[0].__name__} was")
            return value

        return checked

    return result_processor


class Whole(Integer):
    result_processor = _only(int)


class Number(Double[float]):
    result_processor = _only(float, int)


class PlainText(Text):
    result_processor = _only(str)


def json_of(text: str) -> Any:
    """The value of a JSON text of a column. Raises UnreadableError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, TypeError):
        # Several times slower, but it knows lone surrogates and integers of any length.
        try:
            return json.loads(text)
        except (ValueError, RecursionError, TypeError) as error:
            raise UnreadableError(f"a value is no JSON: {error}") from error


class Json(TypeDecorator[Any]):
    """A JSON value as its canonical text; None is the JSON null, not the SQL one."""

    impl = Text
    cache_ok = True
    coerce_to_is_types = ()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return canonical_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json_of(value)


class PackedText(TypeDecorator[str]):
    """Text, compressed: traces and programs shrink 4 times, for 30 microseconds per 8 kB.

    A higher level than 1 gains a tenth and takes twice as long. Features stay as they are: they
    shrink as well, but a select stage reads those of a thousand trials at once.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else zlib.compress(value.encode(), 1)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        try:
            return None if value is None else zlib.decompress(value).decode()
        except (zlib.error, ValueError, TypeError) as error:
            raise UnreadableError(f"a text cannot be unpacked: {error}") from error


def plain(text: str) -> str:
    """A text as every database holds it: NUL and lone surrogates are replaced."""
    return text.replace("\0", "?").encode("utf-8", "replace").decode()
