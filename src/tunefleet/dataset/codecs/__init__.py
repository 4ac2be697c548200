"""Tuning logs of any format as columns of `schema.RECORDS`, and back where that is loss-free.

for batch in read("resnet.json.gz", device="v100"):
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path

import pyarrow as pa

from tunefleet.dataset.codecs.auto_scheduler import AutoScheduler
from tunefleet.dataset.codecs.autotvm import AutoTVM
from tunefleet.dataset.codecs.codec import BadLine, Codec, WritingCodec
from tunefleet.dataset.codecs.kernel_tuner import KernelTuner
from tunefleet.dataset.codecs.metaschedule import MetaSchedule
from tunefleet.dataset.files import BrokenFileError, head
from tunefleet.errors import InputError

__all__ = ["FORMATS", "BadLine", "Codec", "WritingCodec", "format_of", "read", "write"]

_CODECS: tuple[Codec, ...] = (AutoScheduler(), AutoTVM(), MetaSchedule(), KernelTuner())
FORMATS: dict[str, Codec] = {codec.name: codec for codec in _CODECS}


def read(
    path: str | PathLike[str],
    *,
    device: str = "",
    format: str | None = None,
    strict: bool = False,
    on_bad: Callable[[BadLine], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of one log, plain, .gz or .zst, as batches in the order of its lines.

    Lines that are no records go to `on_bad`; with `strict` the first of them is an InputError, as
    are a file that cannot be opened and one of no known format. Memory does not grow with the file.
    """
    file = Path(path)

    def report(line: int, reason: str) -> None:
        bad = BadLine(str(path), line, reason)
        if strict:
            raise InputError(str(bad), cure="repair it, or read without strict")
        if on_bad is not None:
            on_bad(bad)

    name = format or format_of(file)
    if name is None:
        if not next(iter(head(file)), None):
            return
        raise InputError(f"{path} is not a tuning log of a known format", cure="name its format")
    try:
        yield from _codec(name).read(file, device, report)
    except BrokenFileError as error:
        report(error.line, error.reason)


def write(batches: Iterable[pa.RecordBatch], path: str | PathLike[str], format: str) -> int:
    """Write records of a format as its log and return how many there were.

    Raises InputError for records of another format, or a format that is not written.
    """
    codec = _codec(format)
    if not isinstance(codec, WritingCodec):
        raise InputError(f"{format} is not written", cure="write auto_scheduler or metaschedule")
    return codec.write(_of_format(batches, format), Path(path))


def format_of(path: Path) -> str | None:
    """The format of a log by its name and first bytes, or None."""
    start = head(path)
    return next((codec.name for codec in _CODECS if codec.sniff(path, start)), None)


def _codec(name: str) -> Codec:
    if name not in FORMATS:
        raise InputError(f"{name!r} is no format of logs", cure=f"choose of {', '.join(FORMATS)}")
    return FORMATS[name]


def _of_format(batches: Iterable[pa.RecordBatch], format: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        others = set(batch.column("format").unique().to_pylist()) - {format}
        if others:
            raise InputError(
                f"there are records of {', '.join(sorted(others))}, not only of {format}",
                cure="write each format by itself",
            )
        yield batch
