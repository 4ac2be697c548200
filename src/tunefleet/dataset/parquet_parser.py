"""Reads a Parquet file of records in a separate process, and streams its row groups.

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

#: Arrow's exceptions for a damaged file; ValueError for column names that are not text.
_DAMAGES = (OSError, pa.ArrowException, ValueError)


def _stream(arguments: Sequence[str], stream: IO[bytes]) -> None:
    """Write each row group as one Arrow stream: dictionaries of lists cannot span two."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    path, columns = Path(arguments[0]), list(arguments[1:]) or None
    with _opened(path) as file:
        try:
            for index in range(file.num_row_groups):
                group = file.read_row_group(index, columns=columns, use_threads=False)
                group = group.combine_chunks()
                # Arrow does not validate dictionary indices and texts on reading.
                group.validate(full=True)
                with pa.ipc.new_stream(stream, group.schema) as writer:
                    writer.write_table(group)
        except MemoryError:
            raise  # also an ArrowException
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
        content = f"records of {name}" if name else "no tuning records"
        raise InputError(f"{path} contains {content}, not {NAME}", cure=IMPORT)
    if not schema.equals(RECORDS):
        raise InputError(f"the columns of {path} are not those of {NAME}", cure=IMPORT)
    return pq.ParquetFile(path, read_dictionary=words)


def _paths(path: Path) -> list[str]:
    """The paths of the dictionary columns; names of list elements differ between writers."""
    columns = pq.read_metadata(path).schema
    paths = [columns.column(number).path for number in range(len(columns))]
    words = {word.partition(".")[0] for word in WORDS}
    return [path for path in paths if path.partition(".")[0] in words]


if __name__ == "__main__":
    parse(_stream)
