"""Small tables of the records schema, made of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tunefleet.dataset.schema import RECORDS


def a_record(**given: Any) -> dict[str, Any]:
    """A valid record of auto_scheduler; `steps` are lists, written as JSON texts."""
    row = {
        "source": "a.json",
        "line": 1,
        "format": "auto_scheduler",
        "version": "v0.6",
        "device": "v100",
        "target": "cuda",
        "workload": '["f", [64, 64]]',
        "steps": [["SP", 2, 0, 64, [4, 1, 2, 1], 1]],
        "costs_s": [1e-3],
        "error_no": 0,
        "all_cost_s": 2.0,
        "timestamp": 1.6e9,
        "extra": "{}",
        "definition": None,
        **given,
    }
    row["steps"] = [json.dumps(step, separators=(",", ":")) for step in row["steps"]]
    return row


def a_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=RECORDS)
