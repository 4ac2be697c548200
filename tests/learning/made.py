"""Made-up records for the tests of learning: their latency follows from their primitives."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa

from tests.dataset.records import Record, table
from tunefleet.learning.records import Records, SourceFile


def made_table(
    tasks: int = 4, programs: int = 30, devices: Sequence[str] = ("v100",), failed: int = 1
) -> pa.Table:
    """Every task on every device; a larger inner tile is faster, the last programs failed."""
    return table(
        [
            Record(
                workload=f"w{task}",
                device=device,
                steps=(f'["SP",0,0,64,[{program + 1}],1]', f'["CI",{task}]'),
                costs_s=(1.0 / (1.0 + program),),
                error_no=4 if program >= programs - failed else 0,
                source=f"logs/net{task % 2}.json",
            )
            for device in devices
            for task in range(tasks)
            for program in range(programs)
        ]
    )


def made_records(*tables: pa.Table) -> Records:
    """As if each table had been a file."""
    tables = tables or (made_table(),)
    files = tuple(
        SourceFile(f"{i}.parquet", sha256(str(t.to_pylist()).encode()).hexdigest(), len(t))
        for i, t in enumerate(tables)
    )
    return Records(pa.concat_tables(tables).unify_dictionaries(), files)


def silent(text: str) -> None:
    """Progress that nobody waits for."""
