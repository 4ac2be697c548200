"""Specifications such as ``zoo:resnet50?batch=4&size=256``: checked, completed, canonical."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from tunefleet.core.precision import FLOAT32, PRECISIONS
from tunefleet.errors import InputError
from tunefleet.zoo.catalogue import CATALOGUE, CatalogueEntry, Parameter

PREFIX = "zoo:"
_PRECISION = "precision"


@dataclass(frozen=True, slots=True)
class ZooSpec:
    """A network of the zoo with every parameter resolved, sorted by name.

    `str()` is canonical: it leaves out defaults, so that two ways of asking for the same network
    read the same. Raises InputError for an unknown network or parameter and for a value outside
    its limits. `precision` is one of `tunefleet.core.precision`.
    """

    name: str
    params: tuple[tuple[str, int], ...] = ()
    precision: str = FLOAT32

    def __post_init__(self) -> None:
        entry = _entry(self.name)
        given = dict(self.params)
        for key, value in given.items():
            _check(self.name, key, value, entry)
        complete = {k: given.get(k, p.default) for k, p in sorted(entry.parameters.items())}
        object.__setattr__(self, "params", tuple(complete.items()))
        if self.precision not in PRECISIONS:
            raise InputError(
                f"{PREFIX}{self.name}: {_PRECISION}={_shown(self.precision)} is not known",
                cure=f"choose {' or '.join(PRECISIONS)}",
            )

    def __getitem__(self, key: str) -> int:
        return dict(self.params)[key]

    @property
    def complete(self) -> str:
        """The specification with its defaults written out: what a digest is made from."""
        return f"{PREFIX}{self.name}?{_query({**dict(self.params), **self._precision()})}"

    @property
    def in_floats(self) -> ZooSpec:
        """The same network before it is quantised."""
        return replace(self, precision=FLOAT32)

    @property
    def label(self) -> str:
        """A name fit for a file or a table: ``resnet50-batch4-size256``."""
        changed = [f"{k}{v}" for k, v in self._changed().items()]
        return "-".join([self.name, *changed, *self._precision().values()])

    def _precision(self) -> dict[str, str]:
        return {} if self.precision == FLOAT32 else {_PRECISION: self.precision}

    def _changed(self) -> dict[str, int]:
        defaults = CATALOGUE[self.name].parameters
        return {k: v for k, v in self.params if v != defaults[k].default}

    def __str__(self) -> str:
        changed = self._changed() | self._precision()
        return f"{PREFIX}{self.name}" + (f"?{_query(changed)}" if changed else "")


def parse(spec: str) -> ZooSpec:
    """Reads ``zoo:name?key=value&key=value``; the prefix may be left out. Raises InputError."""
    name, _, query = spec.strip().removeprefix(PREFIX).partition("?")
    _entry(name)
    params: dict[str, int] = {}
    precision = ""
    for part in filter(None, query.split("&")):
        key, equals, text = part.partition("=")
        if not equals:
            raise InputError(
                f"{spec}: {_shown(part)} is not key=value",
                cure=f"write {PREFIX}{name}?{key or 'batch'}=1",
            )
        if key in params or (key == _PRECISION and precision):
            raise InputError(f"{spec}: {key} is given twice", cure="leave one of them out")
        if key == _PRECISION:
            precision = text or "nothing"
            continue
        params[key] = _integer(name, key, text)
    return ZooSpec(name, tuple(params.items()), precision or FLOAT32)


def _query(params: Mapping[str, int | str]) -> str:
    return "&".join(f"{k}={v}" for k, v in params.items())


def _shown(text: str) -> str:
    """`text` quoted, and cut to what a one-line message can carry."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _entry(name: str) -> CatalogueEntry:
    entry = CATALOGUE.get(name)
    if entry is None:
        close = get_close_matches(name.lower().replace("-", "_"), CATALOGUE, n=1, cutoff=0.5)
        hint = f"did you mean {PREFIX}{close[0]}?" if close else "`tunefleet networks` lists them"
        raise InputError(f"the zoo has no network {_shown(name)}", cure=hint)
    return entry


def _parameter(name: str, key: str, entry: CatalogueEntry) -> Parameter:
    parameter = entry.parameters.get(key)
    if parameter is None:
        raise InputError(
            f"{PREFIX}{name} has no parameter {_shown(key)}",
            cure=f"it takes {', '.join(sorted([*entry.parameters, _PRECISION]))}",
        )
    return parameter


def _integer(name: str, key: str, text: str) -> int:
    parameter = _parameter(name, key, CATALOGUE[name])
    if not (text.isascii() and text.lstrip("-").isdigit()) or len(text) > 12:
        raise InputError(
            f"{PREFIX}{name}: {key}={_shown(text)} is not a whole number",
            cure=f"give one, such as {key}={parameter.default}",
        )
    return int(text)


def _check(name: str, key: str, value: int, entry: CatalogueEntry) -> None:
    parameter = _parameter(name, key, entry)
    if not parameter.least <= value <= parameter.most:
        off = "small" if value < parameter.least else "large"
        raise InputError(
            f"{PREFIX}{name}: {key}={value} is too {off}",
            cure=f"choose {key} from {parameter.least} to {parameter.most}",
        )
    if value % parameter.step:
        raise InputError(
            f"{PREFIX}{name}: {key}={value} is not a multiple of {parameter.step}",
            cure=f"choose {key}={value // parameter.step * parameter.step or parameter.step}",
        )
