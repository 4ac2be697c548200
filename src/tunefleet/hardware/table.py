"""The device table: rows in TOML, looked up by any of their names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from tunefleet.errors import InputError
from tunefleet.hardware.features import Hardware
from tunefleet.system.files import read_small

SCHEMA = "tunefleet-devices/1"
#: Maximum size of a device table; rows have hundreds of bytes each.
_MOST_BYTES = 16 << 20

#: Optional words: `NVIDIA Tesla V100`, `Tesla V100` and `V100` are the same.
_BRANDS = frozenset(
    ("nvidia", "tesla", "geforce", "amd", "radeon", "instinct", "intel", "xeon", "core", "arm",
     "apple")
)  # fmt: skip


def normal_name(name: str) -> str:
    """The lookup key of a name: lower-case letters and digits, without spaces, signs and brands."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _BRANDS) or "".join(words)


class HardwareTable:
    """Rows in order; in a combined table, names of the upper table hide those of the lower."""

    def __init__(self, rows: Iterable[Hardware], *, over: HardwareTable | None = None) -> None:
        """Raises ValueError if two of `rows` share a name."""
        own: dict[str, Hardware] = {}
        for row in rows:
            for name in {normal_name(n) for n in (row.key, row.name, *row.aliases)}:
                if name in own:
                    raise ValueError(f"{row.key} and {own[name].key} share the name {name!r}")
                own[name] = row
        self._rows: dict[str, Hardware] = {**(over._rows if over else {}), **own}

    def __iter__(self) -> Iterator[Hardware]:
        """All rows, each once."""
        return iter({row.key: row for row in self._rows.values()}.values())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, name: str) -> Hardware | None:
        """The row of a name or alias in any spelling, or None."""
        return self._rows.get(normal_name(name))

    def find(self, name: str) -> Hardware:
        """The row of a name or alias; raises InputError with similar names."""
        row = self.get(name)
        if row is None:
            raise InputError(f"no device {name!r} in the device table", cure=self._advice(name))
        return row

    def _advice(self, name: str) -> str:
        wanted = normal_name(name)
        near = [known for known in self._rows if len(wanted) > 2 and wanted in known]
        near += get_close_matches(wanted, self._rows, n=6, cutoff=0.5)
        keys = list(dict.fromkeys(self._rows[known].key for known in near))[:6]
        if keys:
            return f"did you mean {', '.join(keys)}? `tunefleet dataset devices` lists all"
        return "`tunefleet dataset devices` lists all; --devices FILE adds your own"

    def with_file(self, path: Path) -> HardwareTable:
        """This table extended by the rows of a user's file, which take precedence."""
        try:
            text = read_small(path, _MOST_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or "it is not text"
            raise InputError(f"cannot read {path}: {cause}", cure="give a TOML file") from error
        return parse(text, str(path), over=self)


@cache
def shipped_table() -> HardwareTable:
    """The table shipped with tunefleet."""
    text = (files("tunefleet.hardware") / "devices.toml").read_text(encoding="utf-8")
    return parse(text, "devices.toml")


def parse(text: str, name: str, over: HardwareTable | None = None) -> HardwareTable:
    """Parse a TOML text; InputError names the file and the row."""
    cure = f"write rows as `[[device]]` below `schema = {SCHEMA!r}`"
    try:
        value = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{name} is not TOML: {error}", cure=cure) from error
    rows = value.pop("device", [])
    if value != {"schema": SCHEMA} or not isinstance(rows, list):
        raise InputError(f"{name} is not a device table of {SCHEMA}", cure=cure)
    parsed = [_row(row, f"{name}, device {index}") for index, row in enumerate(rows, 1)]
    try:
        return HardwareTable(parsed, over=over)
    except ValueError as error:
        raise InputError(f"{name}: {error}", cure="give each device unique names") from error


def _row(value: Any, place: str) -> Hardware:
    hints = get_type_hints(Hardware)
    known = {each.name for each in fields(Hardware)}
    if isinstance(value, dict):
        place = f"{place} ({value.get('key', 'without key')})"
    try:
        if not isinstance(value, dict):
            raise ValueError("not a table")
        for name, item in value.items():
            if name not in known:
                raise ValueError(f"{name} is not a feature")
            if not _fits(item, hints[name]):
                raise ValueError(f"{name} is {item!r}")
        arrays = {name: tuple(item) for name, item in value.items() if isinstance(item, list)}
        return Hardware(**{**value, **arrays})
    except (TypeError, ValueError) as error:
        cause = str(error).replace("Hardware.__init__() ", "")
        raise InputError(f"{place}: {cause}", cure="see the top of the shipped table") from error


def _fits(item: Any, hint: Any) -> bool:
    """Whether a TOML value fits the type of a field."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(item, option) for option in get_args(hint))
    if isinstance(item, list):
        return get_origin(hint) is tuple and all(isinstance(each, str) for each in item)
    if isinstance(item, dict):
        numbers = all(_fits(each, float) for each in item.values())
        return get_origin(hint) not in (None, tuple) and numbers
    if hint is float:
        return isinstance(item, (int, float)) and not isinstance(item, bool)
    if hint is int:
        return isinstance(item, int) and not isinstance(item, bool)
    return isinstance(hint, type) and issubclass(hint, str) and isinstance(item, str)
