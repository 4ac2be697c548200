"""Measured programs of real tuning runs with their features, FLOPs and labels, by device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from common import DATA
from tunefleet.costmodel import MODELS, InputForm, LabelledPrograms
from tunefleet.dataset import codecs
from tunefleet.dataset.flops import flops_by_workload
from tunefleet.dataset.rows import Codes, Rows
from tunefleet.dataset.splits import SplitRows
from tunefleet.features.sequences import Sequences

GPU, CPU = "gpu", "cpu"

#: Kind of device and folders of its logs, by the name given to the device.
DEVICES: Mapping[str, tuple[str, str]] = {
    "2080ti": (GPU, "rtx2080ti_bert_resnet50"),
    "v100": (GPU, "roller_v100_*"),
    "a100": (GPU, "fineco_a100"),
    "icelake": (CPU, "icelake8358_*"),
    "a72": (CPU, "droplet_a72_ansor"),
}


def read(device: str, data: Path = DATA) -> pa.Table | None:
    """All records of a device, or None where its logs are not there."""
    logs = sorted(data.glob(f"{DEVICES[device][1]}/**/*.gz"))
    batches = [batch for log in logs for batch in codecs.read(log, device=device)]
    return pa.Table.from_batches(batches) if batches else None


@dataclass(frozen=True)
class Programs:
    """Records as rows, and their primitives as features."""

    rows: Rows
    sequences: Sequences
    flops: Mapping[str, float]

    @classmethod
    def of(cls, table: pa.Table) -> Programs:
        found = flops_by_workload(table.to_batches()).items()
        flops = {workload: known.count or 0.0 for (_, workload), known in found}
        return cls._of_rows(Rows.of(table), flops)

    @classmethod
    def _of_rows(cls, rows: Rows, flops: Mapping[str, float]) -> Programs:
        words = rows.steps.words
        return cls(rows, Sequences.of(words.names, words.codes, rows.steps.lengths), flops)

    def capped(self, split: SplitRows, most: int, seed: int = 0) -> tuple[Programs, SplitRows]:
        """At most so many records to train, half as many to test, a quarter to validate."""
        generator = np.random.default_rng(seed)
        room = {"train": most, "test": most // 2, "validation": most // 4}
        parts = {
            name: generator.choice(part, min(room[name], len(part)), replace=False)
            for name, part in split.parts().items()
        }
        drawn = np.sort(np.concatenate(list(parts.values())))
        numbers = {name: np.sort(np.searchsorted(drawn, part)) for name, part in parts.items()}
        return self._of_rows(self.rows.take(drawn), self.flops), SplitRows(**numbers)

    def programs(self, model: str) -> list[Any]:
        form = MODELS[model].input_form
        return self.sequences.flat() if form is InputForm.FLAT else self.sequences.ragged()


def measured(programs: list[Any], rows: Rows, numbers: Codes) -> LabelledPrograms:
    """Failed trials among these rows have the label 0."""
    return LabelledPrograms(
        [programs[i] for i in numbers],
        rows.labels[numbers],
        rows.task[numbers].astype(str).tolist(),
    )
