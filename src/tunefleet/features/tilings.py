"""A program as its primitives with what they make of its loops: schema `tilings/1`.

No compiler is needed. A program is a row for its task, its device and its main loop nest, and a row
for each primitive that says more (`features/words.py`). Rows have 83 columns:

    0-18    one-hot: program, and the kinds of `words.KINDS`
    19-82   numbers; sizes as log2 or, where they may be 0, as log2(1 + x). Those of the program are
            its context (32) and its summary (32)

Numbers of a primitive: the factors of a split from the innermost out (5), its extent, its parts,
one-hot its axis from the end (4), the value of another choice, and what else is written (6). A
number of threads is a split into one part; the width of a fetch another choice. Those of a knob:
what is written, its name and its value among it (6).
Numbers of the summary: products of factors by level over the spatial axes (5) and the reduction
axes (3), the last spatial and the last reduction axis by level (5 + 3), products of inner levels
(register tile, with its steps of reduction, ...), unrolling, locations,
the longest fusion, counts of other splits, vectorised loops and cached reads.
Numbers of the context: `features/context.py`.

Sums of logarithms over axes are what a linear layer over single primitives cannot keep apart from
their number; boosted trees cannot sum at all. Measured: docs/benchmarks-models.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.features.context import COLUMNS as CONTEXT_COLUMNS
from tunefleet.features.words import (
    END,
    KINDS,
    NUMBERS,
    VECTORIZE,
    Skeleton,
    Word,
    parse,
    parse_value,
    skeleton,
)

SCHEMA = "tilings/1"

_FIRST = 1 + len(KINDS)
_SPATIAL, _REDUCTION = 5, 3
_SUMMARY = 32
PROGRAM = CONTEXT_COLUMNS + _SUMMARY
WIDTH = _FIRST + PROGRAM

_SPLITS = ("spatial", "reduction", "split")
#: Primitives implied by others and the summary: without rows for them, models train in half the
#: time and rank no worse.
_IMPLIED = ("annotate", "follow", "fuse", "reorder")

#: Maximum number of primitives of a program; longer ones are cropped.
LONGEST = 48
#: Columns of a primitive in `flat`: its kind as an index, and its numbers.
_TOKEN = 12 + NUMBERS

Array = NDArray[np.float32]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Tilings:
    """Programs grouped by skeleton: `groups[g]` (programs, rows, WIDTH) are the rows of the
    programs with the indices `members[g]`."""

    groups: tuple[Array, ...]
    members: tuple[Codes, ...]

    def __len__(self) -> int:
        return sum(map(len, self.members))

    @classmethod
    def of(cls, texts: Sequence[str], codes: Codes, lengths: Codes, contexts: Array) -> Tilings:
        """Program i has the next `lengths[i]` of `codes`, indices into `texts`, and the context
        `contexts[i]` (programs, 32). Raises ValueError for a text that is not a JSON array."""
        parsed = [parse(text) for text in texts]
        numbers: dict[str, int] = {}
        key_of = np.array([numbers.setdefault(key, len(numbers)) for key, _ in parsed], np.int64)
        keys = list(numbers)
        starts = np.cumsum(lengths) - lengths
        is_end = np.array([key.startswith(END) for key in keys], bool)
        before_end = _lengths_before_end(is_end[key_of[codes]], lengths)
        grouped: dict[bytes, list[int]] = {}
        for i, (start, length) in enumerate(zip(starts.tolist(), before_end.tolist(), strict=True)):
            grouped.setdefault(key_of[codes[start : start + length]].tobytes(), []).append(i)
        groups, members = [], []
        for key, programs in grouped.items():
            words, which = skeleton(tuple(keys[k] for k in np.frombuffer(key, np.int64)))
            own = np.array(programs, np.int64)
            choices = [
                _choices([parsed[c][1] for c in codes[starts[own] + number].tolist()], size)
                for number, size in zip(which, words.choices, strict=True)
            ]
            groups.append(encode(words, choices, contexts[own]))
            members.append(own)
        return cls(tuple(groups), tuple(members))

    def ragged(self) -> list[Array]:
        """Programs of shape (rows, WIDTH): a row for the program, then its primitives."""
        programs: list[Array] = [np.zeros((0, WIDTH), np.float32)] * len(self)
        for rows, members in zip(self.groups, self.members, strict=True):
            for own, number in zip(rows, members.tolist(), strict=True):
                programs[number] = own
        return programs

    def flat(self) -> list[Array]:
        """Programs of shape (1, columns), for models that sum over rows."""
        return flatten(self.ragged())


def flatten(programs: Sequence[Array]) -> list[Array]:
    """Programs (rows, WIDTH) as one row each, (1, columns), padded with zeros."""
    table = np.zeros((len(programs), PROGRAM + LONGEST * _TOKEN), np.float32)
    by_length: dict[int, list[int]] = {}
    for number, program in enumerate(programs):
        by_length.setdefault(len(program), []).append(number)
    for numbers in by_length.values():
        rows = np.stack([programs[number] for number in numbers])
        table[numbers, :PROGRAM] = rows[:, 0, _FIRST:]
        tokens = rows[:, 1:, _FIRST : _FIRST + _TOKEN].copy()
        tokens[:, :, 6] += 10 * rows[:, 1:, 1:_FIRST].argmax(axis=2)
        end = PROGRAM + tokens.shape[1] * _TOKEN
        table[numbers, PROGRAM:end] = tokens.reshape(len(rows), -1)
    return list(table[:, None, :])


def _lengths_before_end(is_end: NDArray[np.bool_], lengths: Codes) -> Codes:
    """The number of primitives of each program before its first end mark."""
    counts = lengths.copy()
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    np.minimum.at(counts, owner[is_end], place[is_end])
    return counts


def _choices(values: Sequence[tuple[float, ...]], size: int) -> NDArray[np.float64]:
    table = np.zeros((len(values), size))
    if size:
        for row, value in zip(table, values, strict=True):
            row[: len(value)] = value[:size]
    return table


def encode(
    words: Skeleton, choices: Sequence[NDArray[np.float64]], contexts: Array
) -> NDArray[np.float32]:
    """Rows (programs, 1 + words, WIDTH) of programs of one skeleton.

    `choices[i]` is (programs, `words.choices[i]`), factors of a split from the outermost in;
    `contexts` is (programs, 32) or (32,).
    """
    count = len(choices[0]) if choices else len(np.atleast_2d(contexts))
    kept = _kept(words)
    rows = np.zeros((count, 1 + len(kept), WIDTH), np.float32)
    rows[:, 0] = _whole(words, choices, contexts, count)
    for number, own in zip(kept, np.moveaxis(rows[:, 1:], 1, 0), strict=True):
        _write(own, words.words[number], choices[number])
    return rows


def _kept(words: Skeleton) -> list[int]:
    """The indices of the words that have their own row."""
    kept = [number for number, word in enumerate(words.words) if word.kind not in _IMPLIED]
    return kept[:LONGEST]


class Encoder:
    """Encodes programs of one sketch directly from option indices, without traces.

    `instructions` are MetaSchedule instructions, [kind, inputs, attributes, outputs]; `options[i]`
    (options, parts) are the options of the instruction at `positions[i]`: factors of a tile,
    outermost first, the values of a category, locations. The features of all options are computed
    once in the constructor; programs are (programs, choices) option indices.
    """

    def __init__(
        self,
        instructions: Sequence[Sequence[Any]],
        positions: Sequence[int],
        options: Sequence[NDArray[np.integer]],
    ) -> None:
        samples = dict(zip(positions, options, strict=True))
        keys = [
            parse_value([*value, _decision(value, samples[i])] if i in samples else list(value))[0]
            for i, value in enumerate(instructions)
        ]
        self._words, which = skeleton(tuple(keys))
        numbers = {position: number for number, position in enumerate(positions)}
        #: The choice of each word, if any.
        self._choices = [numbers.get(position) for position in which]
        self._options = [
            np.zeros((1, size)) if choice is None else _choice_values(word, options[choice])
            for word, size, choice in zip(
                self._words.words, self._words.choices, self._choices, strict=True
            )
        ]
        self._kept = _kept(self._words)
        tokens = []
        for number in self._kept:
            tokens.append(np.zeros((len(self._options[number]), WIDTH), np.float32))
            _write(tokens[-1], self._words.words[number], self._options[number])
        #: Rows of every option of every word, and the start of each word's rows.
        self.tokens: Array = np.concatenate([np.zeros((0, WIDTH), np.float32), *tokens])
        self._first = np.cumsum([0, *map(len, tokens)])[:-1]

    def encode(self, picks: Codes, context: Array) -> Encoded:
        """Encode programs of one task with the context (32,)."""
        return Encoded(self.tokens, *self.programs(picks, context))

    def programs(self, picks: Codes, context: Array) -> tuple[Array, Codes]:
        """Programs of one task as first rows (programs, WIDTH), and indices (programs, words) of
        their other rows in `tokens`."""
        chosen = [
            options[np.zeros(len(picks), np.int64) if choice is None else picks[:, choice]]
            for options, choice in zip(self._options, self._choices, strict=True)
        ]
        numbers = np.zeros((len(picks), len(self._first)), np.int64)
        for row, (first, word) in enumerate(zip(self._first, self._kept, strict=True)):
            choice = self._choices[word]
            numbers[:, row] = first if choice is None else first + picks[:, choice]
        return _whole(self._words, chosen, context, len(picks)), numbers

    def rows(self, picks: Codes, context: Array) -> Array:
        """The same as rows (programs, 1 + words, WIDTH), in the format of `Tilings`."""
        return self.encode(picks, context).rows()


@dataclass(frozen=True)
class Encoded:
    """Programs of one sketch: program i is `first[i]` and the rows `tokens[numbers[i]]`."""

    tokens: Array
    first: Array
    numbers: Codes

    def __len__(self) -> int:
        return len(self.first)

    def rows(self) -> Array:
        """(programs, rows, WIDTH), in the format of `Tilings`."""
        return np.concatenate([self.first[:, None], self.tokens[self.numbers]], axis=1)

    @property
    def distinct(self) -> tuple[list[Array], Codes]:
        """Tables of rows, and the indices (programs, rows) of each program's rows in their
        concatenation."""
        own = np.arange(len(self.first))[:, None]
        return [self.first, self.tokens], np.concatenate(
            [own, len(self.first) + self.numbers], axis=1
        )


def _decision(instruction: Sequence[Any], options: NDArray[np.integer]) -> Any:
    """A valid decision of an instruction."""
    if instruction[0] == "SamplePerfectTile":
        return options[0].tolist()
    return 0


def _choice_values(word: Word, options: NDArray[np.integer]) -> NDArray[np.float64]:
    """The options of a word as choice values; options from a list as logarithms."""
    values = options.astype(np.float64)
    listed = word.listed or word.kind in ("unroll", "other")
    return np.log2(1.0 + values) if listed else values


def _whole(
    words: Skeleton, choices: Sequence[NDArray[np.float64]], contexts: Array, count: int
) -> Array:
    """The first rows (programs, WIDTH): context and summary."""
    rows = np.zeros((count, WIDTH), np.float32)
    rows[:, 0] = 1.0
    rows[:, _FIRST : _FIRST + CONTEXT_COLUMNS] = contexts
    summary = _Summary(count)
    for word, chosen in zip(words.words, choices, strict=True):
        summary.add(word, chosen)
    rows[:, _FIRST + CONTEXT_COLUMNS :] = summary.numbers()
    return rows


def _write(rows: Array, word: Word, chosen: NDArray[np.float64]) -> None:
    """Write a word with its choices into zeroed rows (choices, WIDTH)."""
    rows[:, 1 + KINDS.index(word.kind)] = 1.0
    numbers = rows[:, _FIRST:]
    if word.kind in _SPLITS:
        levels = _levels_of(word, chosen)
        width = min(levels.shape[1], _SPATIAL)
        numbers[:, :width] = levels[:, :width]
        numbers[:, 5] = levels.sum(axis=1)
        numbers[:, 6] = levels.shape[1]
        numbers[:, 7 + min(word.place, 3)] = 1.0
    elif word.kind == "knob":
        numbers[:, : chosen.shape[1]] = chosen
    elif chosen.shape[1]:
        numbers[:, 11] = chosen[:, 0]
    numbers[:, 12 : 12 + len(word.numbers)] = word.numbers


def _levels_of(word: Word, chosen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Factors of a split as logarithms, innermost first."""
    factors = np.exp2(chosen) - 1.0 if word.listed else chosen
    levels: NDArray[np.float64] = np.log2(np.maximum(factors[:, ::-1], 1.0))
    return levels


class _Summary:
    """The summary of the splits of the main nest."""

    def __init__(self, programs: int) -> None:
        self._programs = programs
        self._spatial: list[tuple[NDArray[np.float64], int]] = []
        self._reduction: list[tuple[NDArray[np.float64], int]] = []
        self._others = np.zeros(programs)
        self._other_count = 0
        self._locations: list[NDArray[np.float64]] = []
        self._unroll = np.zeros(programs)
        self._vectorized = self._fused = self._cached = 0.0

    def add(self, word: Word, chosen: NDArray[np.float64]) -> None:
        kind = word.kind
        if kind == "spatial":
            self._spatial.append((_levels_of(word, chosen), word.place))
        elif kind == "reduction":
            self._reduction.append((_levels_of(word, chosen), word.place))
        elif kind == "split":
            self._others = self._others + _levels_of(word, chosen)[:, 0]
            self._other_count += 1
        elif kind in ("location", "compute_at") and chosen.shape[1]:
            self._locations.append(chosen[:, 0])
        elif kind in ("unroll", "pragma"):
            self._unroll = np.maximum(self._unroll, chosen[:, 0])
        elif kind == "annotate":
            self._vectorized += word.numbers[-1:] == (VECTORIZE,)
        elif kind == "fuse":
            self._fused = max(self._fused, word.numbers[0])
        elif kind == "cache_read":
            self._cached += 1

    def numbers(self) -> NDArray[np.float64]:
        spatial, reduction = self._spatial, self._reduction
        by_level = self._levels([s for s, _ in spatial], _SPATIAL)
        reduced = self._levels([s for s, _ in reduction], _REDUCTION)
        last = self._levels([s for s, place in spatial if place == 0], _SPATIAL)
        last_reduced = self._levels([s for s, place in reduction if place == 0], _REDUCTION)
        before_last = self._levels([s for s, place in spatial if place == 1], 2)
        inner = by_level.cumsum(axis=1)
        columns = [
            by_level, reduced, last, last_reduced,
            inner[:, 1:4], inner[:, 1:2] + reduced[:, :1],
            self._unroll[:, None], self._location(0), self._location(1),
            np.full((self._programs, 1), self._other_count), self._others[:, None],
            before_last,
            inner[:, -1:], reduced.sum(axis=1, keepdims=True),
            np.tile([self._vectorized, self._fused, self._cached], (self._programs, 1)),
        ]  # fmt: skip
        summary = np.concatenate(columns, axis=1)
        return np.pad(summary, ((0, 0), (0, _SUMMARY - summary.shape[1])))

    def _levels(self, splits: Sequence[NDArray[np.float64]], most: int) -> NDArray[np.float64]:
        total = np.zeros((self._programs, most))
        for levels in splits:
            width = min(most, levels.shape[1])
            total[:, :width] += levels[:, :width]
        return total

    def _location(self, number: int) -> NDArray[np.float64]:
        if number < len(self._locations):
            return self._locations[number][:, None]
        return np.zeros((self._programs, 1))
