"""The short cut through auto_scheduler lines that are spaced as TVM or `json.dumps` space them.

A line is cut where its task ends, where its steps end and between its steps. The pieces repeat from
line to line, all but the result, so each distinct one is parsed once. It is parsed in place, by the
parser of whole lines or of whole steps: that it is accepted there shows that the cuts were made
between values and not inside a text. The result is held against a pattern. A line that does not
come apart this way is parsed as a whole. So the short cut gives what the parser gives for every
line; tests hold that with made-up ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tunefleet.dataset import steps
from tunefleet.dataset.codecs.codec import LineError, TellBadLine
from tunefleet.dataset.codecs.rows import Parse, Row, batch_of, constant, parsed
from tunefleet.dataset.formats import AUTO_SCHEDULER
from tunefleet.dataset.schema import RECORDS
from tunefleet.errors import InputError

Mask = np.ndarray[Any, np.dtype[np.bool_]]

#: What stands behind the text before it: the end of the line.
_VERSIONS = {f'v0.{n}"}}'.encode(): f"v0.{n}" for n in range(2, 7)}
#: No more digits than the columns take: beyond that, the whole line is judged.
_ERROR_NO = "(?:0|[1-9][0-9]{0,3})"
_TIMESTAMP = "(?:0|[1-9][0-9]{0,14})"
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"


@dataclass(frozen=True)
class Spacing:
    """One way to put spaces between values: where lines are cut, and how results look."""

    comma: bytes
    task_end: bytes
    between_steps: bytes
    steps_end: bytes
    costs_end: bytes
    result_end: bytes
    costs: str
    scalars: str


def _spacing(comma: str, colon: str) -> Spacing:
    return Spacing(
        comma=comma.encode(),
        task_end=f']{comma}[[]{comma}[["'.encode(),
        between_steps=f']{comma}["'.encode(),
        steps_end=f']]]]{comma}"r"{colon}[['.encode(),
        costs_end=f"]{comma}".encode(),
        result_end=f']{comma}"v"{colon}"'.encode(),
        costs=f"^{_NUMBER}(?:{comma}{_NUMBER})*$",
        scalars=f"^{_ERROR_NO}{comma}{_NUMBER}{comma}{_TIMESTAMP}$",
    )


SPACED, COMPACT = _spacing(", ", ": "), _spacing(",", ":")


class Reader:
    """Reads the lines of one file; `parse` is the parser of whole lines."""

    def __init__(self, source: str, device: str, parse: Parse) -> None:
        self._source = source
        self._device = device
        self._parse = parse
        self._spacing = SPACED
        self._task = lru_cache(maxsize=1 << 12)(self._parse_task)

    def batch(self, first: int, lines: Sequence[bytes], report: TellBadLine) -> pa.RecordBatch:
        """The records of lines, the first of which has the number `first`."""
        pieces = self._pieces(first, lines)
        whole = pieces.others
        records = self._batch_of(pieces)
        if records.num_rows < len(pieces.lines):
            whole = sorted({*whole, *pieces.lines} - set(records.column("line").to_pylist()))
        rows = list(parsed(((n, lines[n - first]) for n in whole), self._parse, report))
        if not rows:
            return records
        return _in_order(records, batch_of(rows, AUTO_SCHEDULER, self._source, self._device))

    def _pieces(self, first: int, lines: Sequence[bytes]) -> Pieces:
        """The lines cut as the last ones were, or the other way where more come apart so."""
        pieces = Pieces(self._spacing, first, lines)
        if len(pieces.others) <= len(lines) // 2:
            return pieces
        other = Pieces(COMPACT if self._spacing is SPACED else SPACED, first, lines)
        if len(other.others) >= len(pieces.others):
            return pieces
        self._spacing = other.spacing
        return other

    def _batch_of(self, pieces: Pieces) -> pa.RecordBatch:
        """The lines that come apart into pieces which are all accepted."""
        count = len(pieces.lines)
        if not count:
            return batch_of([], AUTO_SCHEDULER, self._source, self._device)
        task = np.array(pieces.task, np.int32)
        tasks = [self._task(head, pieces.spacing) for head in pieces.heads]
        version = np.array(pieces.version, np.int32)
        versions = [_VERSIONS.get(end) for end in pieces.ends]
        programs, programs_fit = pieces.programs()
        costs, costs_fit = pieces.costs()
        scalars, scalars_fit = pieces.scalars()
        columns = {
            "source": constant(self._source, count),
            "line": pa.array(pieces.lines, pa.int64()),
            "format": constant(AUTO_SCHEDULER, count),
            "version": _picked([v or "" for v in versions], version),
            "device": constant(self._device, count),
            "target": _picked([t.target if t else "" for t in tasks], task),
            "workload": _picked([t.workload if t else "" for t in tasks], task),
            "steps": programs,
            "costs_s": costs,
            "error_no": scalars[0],
            "all_cost_s": scalars[1],
            "timestamp": scalars[2],
            "extra": _picked([t.extra if t else "" for t in tasks], task),
            "definition": constant(None, count),
        }
        batch = pa.record_batch([columns[name] for name in RECORDS.names], schema=RECORDS)
        fit = np.array([t is not None for t in tasks])[task] & programs_fit & costs_fit
        fit &= np.array([v is not None for v in versions])[version] & scalars_fit
        return batch if fit.all() else batch.filter(pa.array(fit))

    def _parse_task(self, head: bytes, space: Spacing) -> Row | None:
        """The task that a line begins with, or None where the line has to be parsed as a whole."""
        rest = b'CI"' + space.comma + b'0]]]],"r":[[0],0,0,0],"v":"v0.2"}'
        try:
            return self._parse(0, head + space.task_end + rest)
        except (LineError, RecursionError):
            return None


class Pieces:
    """Lines cut to pieces: the rows of a batch, and the numbers of lines that do not come apart."""

    def __init__(self, spacing: Spacing, first: int, lines: Sequence[bytes]) -> None:
        self.spacing = spacing
        self.others: list[int] = []
        self.lines: list[int] = []
        #: Distinct beginnings and endings of lines, and which of them each line has.
        self.heads: dict[bytes, int] = {}
        self.task: list[int] = []
        self.ends: dict[bytes, int] = {}
        self.version: list[int] = []
        self._programs: list[bytes] = []
        self._costs: list[bytes] = []
        self._scalars: list[bytes] = []
        for number, line in enumerate(lines, first):
            head, _, rest = line.partition(spacing.task_end)
            program, _, rest = rest.rpartition(spacing.steps_end)
            costs, _, rest = rest.partition(spacing.costs_end)
            scalars, separator, end = rest.partition(spacing.result_end)
            if not (separator and program and head[:1] == b"{"):
                self.others.append(number)
                continue
            self.lines.append(number)
            self.task.append(self.heads.setdefault(head, len(self.heads)))
            self.version.append(self.ends.setdefault(end, len(self.ends)))
            self._programs.append(program)
            self._costs.append(costs)
            self._scalars.append(scalars)

    def programs(self) -> tuple[pa.ListArray, Mask]:
        """The steps of every line, and whether all of them are accepted."""
        split = pc.split_pattern(_binary(self._programs), self.spacing.between_steps)
        encoded = split.values.dictionary_encode()
        codes: dict[str, int] = {}
        known = []
        for piece in encoded.dictionary.to_pylist():
            text = _step(piece)
            known.append(-1 if text is None else codes.setdefault(text, len(codes)))
        code = np.array(known, np.int32)[encoded.indices.to_numpy()]
        offsets = split.offsets.to_numpy()
        fit = np.minimum.reduceat(code, offsets[:-1]) >= 0
        values = pa.DictionaryArray.from_arrays(
            pa.array(np.maximum(code, 0)), pa.array([*codes] or [""], pa.utf8())
        )
        return pa.ListArray.from_arrays(split.offsets, values), fit

    def costs(self) -> tuple[pa.ListArray, Mask]:
        """The seconds of every repeat of every line, and whether they are numbers."""
        texts, fit = self._matching(self._costs, self.spacing.costs, b"0")
        split = pc.split_pattern(texts, self.spacing.comma)
        values, finite = _doubles(split.values)
        if not finite.all():
            fit &= np.minimum.reduceat(finite, split.offsets.to_numpy()[:-1])
        return pa.ListArray.from_arrays(split.offsets, values), fit

    def scalars(self) -> tuple[tuple[pa.Array, pa.Array, pa.Array], Mask]:
        """The error number, the seconds in all and the timestamp of every line, as numbers."""
        zeros = self.spacing.comma.join([b"0"] * 3)
        texts, fit = self._matching(self._scalars, self.spacing.scalars, zeros)
        values = pc.split_pattern(texts, self.spacing.comma).values
        error_no, all_cost, timestamp = (
            values.take(pa.array(np.arange(i, len(values), 3))) for i in range(3)
        )
        seconds, finite = _doubles(all_cost)
        fit &= finite
        stamps = timestamp.cast(pa.utf8()).cast(pa.int64()).cast(pa.float64())
        return (error_no.cast(pa.utf8()).cast(pa.int16()), seconds, stamps), fit

    @staticmethod
    def _matching(texts: list[bytes], pattern: str, instead: bytes) -> tuple[pa.Array, Mask]:
        """The texts of a pattern, with something harmless in the place of others."""
        array = _binary(texts)
        fit = pc.match_substring_regex(array, pattern)
        mask: Mask = fit.to_numpy(zero_copy_only=False).copy()
        return (array if mask.all() else pc.if_else(fit, array, instead)), mask


def _step(piece: bytes) -> str | None:
    """The step between two cuts, as it stands in the column."""
    try:
        return steps.normal(b'["' + piece + b"]")
    except InputError:
        return None


def _binary(texts: Sequence[bytes]) -> pa.Array:
    """An array of byte strings; much faster than `pa.array` for long ones."""
    offsets = np.fromiter(accumulate(map(len, texts), initial=0), np.int32, len(texts) + 1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


def _doubles(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """JSON numbers as doubles, and which of them are in the range of doubles."""
    try:
        values = texts.cast(pa.utf8()).cast(pa.float64())
    except pa.ArrowInvalid:  # which it raises for one beyond the range
        values = pa.array([float(text) for text in texts.to_pylist()], pa.float64())
    return values, np.isfinite(values.to_numpy())


def _picked(values: Sequence[str], indices: np.ndarray[Any, np.dtype[np.int32]]) -> pa.Array:
    """A dictionary-encoded column of `values[index]`, each distinct value once."""
    codes: dict[str, int] = {}
    code = np.array([codes.setdefault(value, len(codes)) for value in values], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(code[indices]), pa.array([*codes], pa.utf8()))


def _in_order(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    """Both batches of one file as one, by line."""
    both = pa.Table.from_batches([one, other]).unify_dictionaries().combine_chunks()
    return both.sort_by("line").combine_chunks().to_batches()[0]
