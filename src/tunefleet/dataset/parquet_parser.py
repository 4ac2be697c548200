"""Reads a Parquet file of records in a process of its own, and streams its row groups.

python -m tunefleet.dataset.parquet_parser SIZE FILE [COLUMN ...]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from tunefleet.dataset.parquet import IMPORT, WORDS
from tunefleet.dataset.schema import NAME, RECORDS
from tunefleet.errors import InputError
from tunefleet.system.parsing import parse

#: What Arrow raises for a damaged file; a ValueError for names that are no text.
_DAMAGES = (OSError, pa.ArrowException, ValueError)


def _stream(arguments: Sequence[str], stream: IO[bytes]) -> None:
    """Each row group as one Arrow stream: Arrow reads no lists of words across two of them."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    path, columns = Path(arguments[0]), list(arguments[1:]) or None
    with _opened(path) as file:
        try:
            for index in range(file.num_row_groups):
                group = file.read_row_group(index, columns=columns, use_threads=False)
                group = group.combine_chunks()
                # Arrow trusts places in dictionaries, and texts, until they are used.
                group.validate(full=True)
                with pa.ipc.new_stream(stream, group.schema) as writer:
                    writer.write_table(group)
        except MemoryError:
            raise  # Arrow's own is an ArrowException as well
        except _DAMAGES as error:
            raise InputError(f"{path} is damaged: {error}", cure=IMPORT) from error


def _opened(path: Path) -> pq.ParquetFile:
    try:
        schema, words = pq.read_schema(path), _paths(path)
    except MemoryError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", cure=IMPORT) from error
    except _DAMAGES as error:
        raise InputError(f"{path} is not a Parquet file: {error}", cure=IMPORT) from error
    name = (schema.metadata or {}).get(b"tunefleet", b"").decode(errors="replace")
    if name != NAME:
        holds = f"records of {name}" if name else "no tuning records"
        raise InputError(f"{path} holds {holds}, not {NAME}", cure=IMPORT)
    if not schema.equals(RECORDS):
        raise InputError(f"{path} has other columns than {NAME}", cure=IMPORT)
    return pq.ParquetFile(path, read_dictionary=words)


def _paths(path: Path) -> list[str]:
    """How this file names the columns of words: other writers name what lists hold otherwise."""
    columns = pq.read_metadata(path).schema
    paths = [columns.column(number).path for number in range(len(columns))]
    words = {word.partition(".")[0] for word in WORDS}
    return [path for path in paths if path.partition(".")[0] in words]


if __name__ == "__main__":
    parse(_stream)
