"""Made-up records as tables of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tunefleet.dataset.rows import Rows
from tunefleet.dataset.schema import RECORDS


@dataclass(frozen=True)
class Record:
    workload: str = "matmul"
    device: str = "v100"
    steps: tuple[str, ...] = ('["CI",0]',)
    costs_s: tuple[float, ...] = (1.0,)
    error_no: int = 0
    target: str = "cuda"
    source: str = "logs/resnet-50.json.gz"


def table(records: Sequence[Record]) -> pa.Table:
    columns = {
        "line": range(1, len(records) + 1),
        "format": ["auto_scheduler"] * len(records),
        "version": ["v0.6"] * len(records),
        "extra": ["{}"] * len(records),
        "definition": [None] * len(records),
        "all_cost_s": [1.0] * len(records),
        "timestamp": [0.0] * len(records),
    } | {
        name: [getattr(record, name) for record in records]
        for name in ("source", "device", "target", "workload", "costs_s", "error_no")
    }
    words, numbers = pa.array([s for r in records for s in r.steps], pa.utf8()), [0]
    for record in records:
        numbers.append(numbers[-1] + len(record.steps))
    steps = pa.ListArray.from_arrays(pa.array(numbers, pa.int32()), words.dictionary_encode())
    arrays = {
        name: pa.array(
            column, pa.utf8() if pa.types.is_dictionary(RECORDS.field(name).type) else None
        )
        for name, column in columns.items()
    } | {"steps": steps}
    return pa.table(
        [
            (a.dictionary_encode() if pa.types.is_string(a.type) else a).cast(field.type)
            for field in RECORDS
            for a in [arrays[field.name]]
        ],
        schema=RECORDS,
    )


def rows(records: Sequence[Record]) -> Rows:
    return Rows.of(table(records))


RECORD = st.builds(
    Record,
    workload=st.sampled_from(["conv2d", "matmul", "softmax", "pool", "dense"]),
    device=st.sampled_from(["v100", "a100", "k80"]),
    steps=st.lists(st.sampled_from(['["CI",0]', '["CI",1]', '["CR",0]']), max_size=3).map(tuple),
    costs_s=st.lists(st.sampled_from([0.5, 1.0, 1e-3]), min_size=1, max_size=2).map(tuple),
    error_no=st.sampled_from([0, 0, 0, 4]),
)


def regular(
    tasks: int = 6, programs: int = 40, devices: Sequence[str] = ("v100",), failed: int = 0
) -> Rows:
    """Every task on every device with as many programs; the last ones of each failed."""
    return rows(
        [
            Record(
                workload=f"w{task}",
                device=device,
                steps=(f'["SP",0,0,{program}]', f'["CI",{task}]'),
                costs_s=(1.0 + program,),
                error_no=4 if program >= programs - failed else 0,
            )
            for device in devices
            for task in range(tasks)
            for program in range(programs)
        ]
    )


def programs_of(found: Rows, numbers: np.ndarray) -> set[tuple[int, int]]:
    """(task, primitives) of these rows."""
    return set(
        zip(found.task[numbers].tolist(), found.steps.programs[numbers].tolist(), strict=True)
    )
