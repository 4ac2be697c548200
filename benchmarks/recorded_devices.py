"""Recorded logs of many devices as one table, each device with its share of train and test.

The devices of one `family` write programs of one format, so that a model of some can score those
of another. Splits are within tasks: no program is on two sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from common import DATA
from tunefleet.costmodel import MODELS, InputForm, LabelledPrograms
from tunefleet.dataset import codecs, splits
from tunefleet.dataset.division import Shares
from tunefleet.dataset.rows import Codes
from tunefleet.features import tilings
from tunefleet.learning.inputs import Inputs
from tunefleet.learning.records import Records, SourceFile

GPU, CPU = "gpu", "cpu"
ANSOR, AUTOTVM = "auto_scheduler", "autotvm"


@dataclass(frozen=True)
class Device:
    """`key` is its row of the device table, `logs` where its records are."""

    family: str
    kind: str
    key: str
    logs: str


#: Small logs need a large part to test: of few programs of a task the best are easily found.
_SHARES = Shares(test=0.3, validation=0.1)
_LAYERS = "**/*_layer_*.gz"

#: The most discriminating first.
DEVICES: Mapping[str, Device] = {
    "2080ti": Device(ANSOR, GPU, "rtx2080ti", "rtx2080ti_bert_resnet50/**/*.gz"),
    "a72": Device(ANSOR, CPU, "cortex-a72", "droplet_a72_ansor/**/*.gz"),
    "a100": Device(ANSOR, GPU, "a100", "fineco_a100/**/*.gz"),
    "v100": Device(ANSOR, GPU, "v100", "roller_v100_*/**/*.gz"),
    "icelake": Device(ANSOR, CPU, "platinum-8358", "icelake8358_*/**/*.gz"),
    "k80": Device(ANSOR, GPU, "k80", "roller_k80_ops/**/*.gz"),
    "gtx1650": Device(ANSOR, GPU, "gtx1650", "droplet_gtx1650_ansor/**/*.gz"),
    "autotvm-3700x": Device(AUTOTVM, CPU, "3700x", f"droplet_autotvm/x86_AMD3700X/{_LAYERS}"),
    "autotvm-i7": Device(AUTOTVM, CPU, "i7-3770", f"droplet_autotvm/x86_inteli7-3770/{_LAYERS}"),
    "autotvm-a72": Device(AUTOTVM, CPU, "cortex-a72", f"droplet_autotvm/arm_cortex-a72/{_LAYERS}"),
    "autotvm-gtx1650": Device(AUTOTVM, GPU, "gtx1650", f"droplet_autotvm/cuda_gtx1650/{_LAYERS}"),
}


def read(name: str) -> pa.Table | None:
    """All records of a device, or None where its logs are not there."""
    device = DEVICES[name]
    logs = sorted(DATA.glob(device.logs))
    batches = [batch for log in logs for batch in codecs.read(log, device=device.key)]
    return pa.Table.from_batches(batches) if batches else None


@dataclass(frozen=True)
class Part:
    """Rows of one device: to train, to stop by, to test."""

    train: Codes
    validation: Codes
    test: Codes


@dataclass(frozen=True)
class Fleet:
    """Devices of one family. `inputs` are the rows that are drawn, their features extracted once;
    row numbers are those of `records`."""

    records: Records
    parts: Mapping[str, Part]
    inputs: Inputs

    @classmethod
    def of(cls, names: Sequence[str], train: int, test: int, seed: int = 0) -> Fleet:
        """At most so many records of each device train and test, a quarter of the first validate.

        Records to train are drawn evenly over tasks, those to test at random.
        """
        tables = {name: table for name in names if (table := read(name)) is not None}
        files = tuple(SourceFile(name, name, len(table)) for name, table in tables.items())
        records = Records(pa.concat_tables(tables.values()).unify_dictionaries(), files)
        generator = np.random.default_rng(seed)
        parts, start = {}, 0
        for file in files:
            own = np.arange(start, start + file.rows)
            start += file.rows
            split = splits.within_task(records.rows.take(own), _SHARES, seed)
            tasks = records.rows.task[own]
            drawn = generator.choice(split.test, min(test, len(split.test)), replace=False)
            parts[file.name] = Part(
                own[evenly(split.train, tasks, train, generator)],
                own[evenly(split.validation, tasks, train // 4, generator)],
                own[np.sort(drawn)],
            )
        used = [getattr(p, n) for p in parts.values() for n in ("train", "validation", "test")]
        numbers = np.sort(np.concatenate(used))
        return cls(records, parts, Inputs.of(records, numbers, tilings.SCHEMA, lambda text: None))

    def measured(self, kind: str, numbers: Codes, labels: Any = None) -> LabelledPrograms:
        """Of these rows for a kind of model; labels are of all records unless told."""
        programs, rows = self.programs(kind, numbers), self.records.rows
        given = rows.labels[numbers] if labels is None else labels
        devices = [rows.device.names[code] for code in rows.device.codes[numbers].tolist()]
        return LabelledPrograms(programs, given, rows.task[numbers].astype(str).tolist(), devices)

    def programs(self, kind: str, numbers: Codes) -> list[Any]:
        programs = self._flat if MODELS[kind].input_form is InputForm.FLAT else self._ragged
        return [programs[place] for place in np.searchsorted(self.inputs.numbers, numbers)]

    @cached_property
    def _flat(self) -> Sequence[Any]:
        return self.inputs.features.programs(InputForm.FLAT)

    @cached_property
    def _ragged(self) -> Sequence[Any]:
        return self.inputs.features.programs(InputForm.ROWS)


def evenly(numbers: Codes, tasks: Codes, most: int, generator: np.random.Generator) -> Codes:
    """At most so many of these rows, as many of each task as of any other while there are."""
    shuffled = generator.permutation(numbers)
    order = np.argsort(tasks[shuffled], kind="stable")
    sizes = np.bincount(tasks[shuffled])
    sizes = sizes[sizes > 0]
    place = np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(shuffled[order][np.argsort(place, kind="stable")[:most]])
