"""The one columnar schema of tuning records (`tunefleet-records/1`): a row per record.

A program is its primitives in order, each a JSON array as text without spaces: a step of
auto_scheduler (`["SP",2,0,1024,[1,2,8],1]`), an entity of an AutoTVM configuration, an instruction
of a MetaSchedule trace with its decision, a parameter of Kernel Tuner. Distinct primitives are few,
so they are dictionary-encoded: what is worked out of them is worked out once per distinct one.
"""

from __future__ import annotations

import pyarrow as pa

NAME = "tunefleet-records/1"

#: The columns that name a task, besides the format.
TASK = ("device", "target", "workload")
#: Rows of a batch, unless a log gives them otherwise.
BATCH_ROWS = 1 << 14

#: Few distinct values in many rows.
WORD = pa.dictionary(pa.int32(), pa.utf8())

RECORDS = pa.schema(
    [
        # Where it comes from: the file's name as given, and the line in it, counted from 1.
        pa.field("source", WORD, nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        # auto_scheduler, autotvm, metaschedule or kernel_tuner, and the version written in it.
        pa.field("format", WORD, nullable=False),
        pa.field("version", WORD, nullable=False),
        # The user's name of the device it was measured on: a row of the device table, or "".
        pa.field("device", WORD, nullable=False),
        pa.field("target", WORD, nullable=False),
        # What is computed, as the log names it. With device and target it names a task.
        pa.field("workload", WORD, nullable=False),
        pa.field("steps", pa.list_(WORD), nullable=False),
        # Seconds of every repeat as written; of a failure whatever the log has, or none.
        pa.field("costs_s", pa.list_(pa.float64()), nullable=False),
        # The log's own number of the error, 0 when the record is valid.
        pa.field("error_no", pa.int16(), nullable=False),
        # Wall seconds of build and run together, and when (seconds since the epoch).
        pa.field("all_cost_s", pa.float64()),
        pa.field("timestamp", pa.float64()),
        # A JSON object with what else the format needs to be written back.
        pa.field("extra", WORD, nullable=False),
        # The workload itself where the format keeps it apart (MetaSchedule's module).
        pa.field("definition", WORD),
    ],
    metadata={b"tunefleet": NAME.encode()},
)
