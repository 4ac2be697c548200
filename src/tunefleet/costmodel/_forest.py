"""Boosted trees on whole programs, with a committee that estimates their uncertainty.

Trees take a program as one row: the concatenated columns of its rows, without columns that are
constant over the training programs. They learn labels, with larger weights for fast programs
(`_pack_sum.py`).

The committee is a jackknife over devices (over tasks if there is only one device): each member
trains on all parts but one. If members agree on a program although each lacks another device, their
knowledge transfers to unseen devices.

If programs of earlier trainings are replayed, a second forest trains on them together with the new
ones, and the score is the mean of both, which is better with few records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._tensors import arrays_below, arrays_in

Array = NDArray[np.float32]
Codes = NDArray[np.int64]

#: Maximum number of rows of a program for the trees.
_LONGEST = 49
#: Maximum number of members of a committee.
_MEMBERS = 5
_ROUNDS, _MEMBER_ROUNDS = 300, 100
#: Weight of a new program relative to a replayed one.
_NEW_WEIGHT = 4.0
#: Prefix in files of the forest that was also trained on replayed programs.
_BESIDE = "beside"
#: Row and column sampling of stochastic gradient boosting (Friedman, 2002).
_PARAMETERS = {
    "max_depth": 6, "eta": 0.1, "gamma": 0.001, "min_child_weight": 2, "subsample": 0.8,
    "colsample_bytree": 0.5, "tree_method": "hist", "max_bin": 64, "verbosity": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Programs with `columns` columns as rows of a table; `kept` are places in `_LONGEST` rows."""

    columns: int
    kept: Codes

    @classmethod
    def of(cls, programs: Sequence[ProgramRows]) -> Table:
        """The table of positions that vary among these programs."""
        columns = programs[0].shape[1]
        longest = min(_LONGEST, max(map(len, programs)))
        low = np.full(longest * columns, np.inf, np.float32)
        high = -low
        for _, rows in _by_length(programs):
            # Shorter programs are padded with zeros.
            least, most = np.zeros_like(low), np.zeros_like(low)
            least[: rows.shape[1]], most[: rows.shape[1]] = rows.min(0), rows.max(0)
            low, high = np.minimum(low, least), np.maximum(high, most)
        return cls(columns, np.flatnonzero(low < high))

    def rows(self, programs: Sequence[ProgramRows]) -> Array:
        """(programs, kept), padded with zeros. Raises ValueError for other columns."""
        table = np.zeros((len(programs), max(1, len(self.kept))), np.float32)
        for numbers, rows in _by_length(programs):
            inside = self.kept < rows.shape[1]
            table[np.ix_(numbers, np.flatnonzero(inside))] = rows[:, self.kept[inside]]
        return table


def _by_length(programs: Sequence[ProgramRows]) -> list[tuple[Codes, Array]]:
    """Indices of programs of equal length, and their concatenated rows, in chunks."""
    lengths = np.array([min(len(program), _LONGEST) for program in programs])
    found = []
    for length in np.unique(lengths):
        numbers = np.flatnonzero(lengths == length)
        for part in np.array_split(numbers, -(-len(numbers) // 4096)):
            rows = np.stack([programs[number][:length] for number in part])
            found.append((part, rows.reshape(len(part), -1).astype(np.float32, copy=False)))
    return found


@dataclass(frozen=True)
class Forest:
    """Trees trained on all programs, and a committee whose members lack one part each; `beside`
    was also trained on replayed programs."""

    table: Table
    whole: Any
    members: tuple[Any, ...] = ()
    beside: Forest | None = None

    @classmethod
    def fit(
        cls,
        programs: Sequence[ProgramRows],
        labels: Scores,
        parts: Sequence[Codes],
        seed: int,
        before: LabelledPrograms | None = None,
    ) -> Self:
        """`parts` are the indices of the programs that each member lacks; fewer than two parts give
        no committee. `before` are replayed programs of earlier trainings."""
        table = Table.of(programs)
        rows = table.rows(programs)
        members = []
        for number, part in enumerate(parts if len(parts) > 1 else ()):
            rest = np.setdiff1d(np.arange(len(programs)), part)
            members.append(_boosted(rows[rest], labels[rest], _MEMBER_ROUNDS, seed + 1 + number))
        beside = None if before is None else cls._beside(programs, labels, seed, before)
        return cls(table, _boosted(rows, labels, _ROUNDS, seed), tuple(members), beside)

    @classmethod
    def _beside(
        cls,
        programs: Sequence[ProgramRows],
        labels: Scores,
        seed: int,
        before: LabelledPrograms,
    ) -> Self:
        both = [*before.programs, *programs]
        counts = np.repeat([1.0, _NEW_WEIGHT], [len(before.programs), len(programs)])
        labels = np.concatenate([before.labels, labels])
        table = Table.of(both)
        return cls(table, _boosted(table.rows(both), labels, _ROUNDS, seed, counts))

    def predict(self, programs: Sequence[ProgramRows], rows: Array | None = None) -> Scores:
        """Labels (programs,) by the full forest; `rows` saves computing them again."""
        found = _predicted(self.whole, self.rows(programs) if rows is None else rows)
        return found if self.beside is None else (found + self.beside.predict(programs)) / 2

    def rows(self, programs: Sequence[ProgramRows]) -> Array:
        """The trees' input, a row per program."""
        return self.table.rows(programs)

    def by_member(self, rows: Array) -> Scores:
        """Labels predicted by each member: (members, programs)."""
        return np.array([_predicted(member, rows) for member in self.members])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays in a saved file."""
        boosters = {"whole": self.whole} | {f"member{i}": m for i, m in enumerate(self.members)}
        saved: dict[str, NDArray[Any]] = {
            name: np.frombuffer(bytes(booster.save_raw("ubj")), np.uint8)
            for name, booster in boosters.items()
        }
        saved |= {"kept": self.table.kept, "columns": np.array([self.table.columns])}
        beside = self.beside.arrays() if self.beside else {}
        return saved | arrays_in(_BESIDE, beside)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`. Raises KeyError and ValueError for other arrays."""
        kept, (columns,) = arrays["kept"], arrays["columns"].tolist()
        if kept.dtype != np.int64 or kept.ndim != 1 or (kept < 0).any() or columns < 1:
            raise ValueError("columns outside of any program")
        count = sum(name.startswith("member") for name in arrays)
        members = tuple(
            loaded_trees(arrays[f"member{number}"].tobytes()) for number in range(count)
        )
        others = arrays_below(arrays, _BESIDE)
        beside = cls.of_arrays(others) if others else None
        if beside and beside.table.columns != columns:
            raise ValueError("trees on other columns")
        forest = cls(Table(columns, kept), loaded_trees(arrays["whole"].tobytes()), members, beside)
        if any(booster.num_features() != max(1, len(kept)) for booster in (forest.whole, *members)):
            raise ValueError("trees on other columns")
        return forest


def parts_of(groups: Sequence[Codes], most: int = _MEMBERS) -> list[Codes]:
    """Groups (devices, tasks) merged into at most `most` parts of similar size."""
    parts: list[list[Codes]] = [[] for _ in range(min(most, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(parts, key=lambda part: sum(map(len, part))).append(group)
    return [np.sort(np.concatenate(part)) for part in parts]


def _boosted(
    rows: Array, labels: Scores, rounds: int, seed: int, counts: Scores | float = 1.0
) -> Any:
    """Trees trained on programs with weights."""
    import xgboost

    weights = counts * (0.1 + labels)
    data = xgboost.QuantileDMatrix(rows, labels, weight=weights, nthread=1, max_bin=64)
    return xgboost.train({**_PARAMETERS, "seed": seed, "nthread": 1}, data, rounds)


def _predicted(booster: Any, rows: Array) -> Scores:
    return np.asarray(booster.inplace_predict(rows), np.float64)


def loaded_trees(data: bytes) -> Any:
    """The booster in saved bytes. Raises ValueError for other data."""
    import xgboost

    booster = xgboost.Booster({"nthread": 1})
    try:
        booster.load_model(bytearray(data))
    except xgboost.core.XGBoostError as error:
        raise ValueError("no boosted trees") from error
    return booster
