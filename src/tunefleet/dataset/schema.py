"""The one columnar schema of tuning records (`tunefleet-records/1`): a row per record.

A program is its primitives in order, each a JSON array as text without spaces: a step of
auto_scheduler (`["SP",2,0,1024,[1,2,8],1]`), an entity of an AutoTVM configuration, an instruction
of a MetaSchedule trace with its decision, a parameter of Kernel Tuner. There are few distinct
primitives, so they are dictionary-encoded, and each distinct one is processed once.
"""

from __future__ import annotations

import pyarrow as pa

NAME = "tunefleet-records/1"

#: The columns that identify a task, in addition to the format.
TASK = ("device", "target", "workload")
#: Default number of rows per batch.
BATCH_ROWS = 1 << 14

#: Few distinct values in many rows.
WORD = pa.dictionary(pa.int32(), pa.utf8())

RECORDS = pa.schema(
    [
        # The source: the file name as given, and the line number, counted from 1.
        pa.field("source", WORD, nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        # auto_scheduler, autotvm, metaschedule or kernel_tuner, and its format version.
        pa.field("format", WORD, nullable=False),
        pa.field("version", WORD, nullable=False),
        # The user's name of the device: a row of the device table, or "".
        pa.field("device", WORD, nullable=False),
        pa.field("target", WORD, nullable=False),
        # The log's name of the computation. With device and target it identifies a task.
        pa.field("workload", WORD, nullable=False),
        pa.field("steps", pa.list_(WORD), nullable=False),
        # Seconds of every repeat; for failures the log's values, or none.
        pa.field("costs_s", pa.list_(pa.float64()), nullable=False),
        # The log's error number, 0 for a valid record.
        pa.field("error_no", pa.int16(), nullable=False),
        # Wall seconds of build and run together, and the time (seconds since the epoch).
        pa.field("all_cost_s", pa.float64()),
        pa.field("timestamp", pa.float64()),
        # A JSON object with the remaining data that export needs.
        pa.field("extra", WORD, nullable=False),
        # The workload itself if the format stores it separately (MetaSchedule's module).
        pa.field("definition", WORD),
    ],
    metadata={b"tunefleet": NAME.encode()},
)
