"""Task and device information of records, as the context of schema `tilings/1`.

| format         | shapes                            | operator                              |
|----------------|-----------------------------------|---------------------------------------|
| of tunefleet   | of the arguments                  | the compiler's name                   |
| metaschedule   | of the arguments where recorded   | unknown                               |
| auto_scheduler | in the workload, unless a name    | its name, else by rule and ranks      |
| autotvm        | of the inputs, without outputs    | the template's name                   |
| kernel_tuner   | unknown                           | unknown                               |

Computed once per distinct description. FLOPs come from `dataset.flops`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tunefleet.core.ids import is_digest
from tunefleet.dataset.flop_rules import Flops
from tunefleet.dataset.flops import flops_by_workload, told_in
from tunefleet.dataset.formats import AUTO_SCHEDULER, AUTOTVM
from tunefleet.dataset.rows import Codes
from tunefleet.features import context
from tunefleet.features.context import TaskContext
from tunefleet.features.devices import Place
from tunefleet.hardware import HardwareTable
from tunefleet.learning.records import Records

Shape = tuple[int, ...]

_COLUMNS = ("format", "workload", "target", "device", "extra")
#: Keys of an `extra` that describe the task.
_TELLING = ("args_info", "device", "operator")


def contexts(
    records: Records, numbers: Codes, table: HardwareTable | None = None
) -> NDArray[np.float32]:
    """(rows, 32) features of the task and the device of each of these rows."""
    flops = flops_by_workload(records.table.to_batches())
    distinct, inverse = described(records, numbers)
    values = np.zeros((len(distinct), context.COLUMNS), np.float32)
    devices: dict[Place, tuple[float, ...]] = {}
    for row, said in zip(values, distinct, strict=True):
        place = said.place
        if place not in devices:
            devices[place] = place.numbers(table)
        of_workload = flops.get((said.format, said.workload))
        task = task_context(said.format, said.workload, of_workload, said.extra)
        row[:] = context.numbers(task, devices[place])
    return values[inverse]


@dataclass(frozen=True)
class Description:
    """The task and device information of records."""

    format: str
    workload: str
    target: str
    device: str
    extra: Mapping[str, Any]

    @property
    def place(self) -> Place:
        return Place.of_record(self.device, self.target, self.extra)

    @property
    def types(self) -> tuple[str, ...]:
        """TVM's types of the input tensors; empty if unknown."""
        if self.format == AUTOTVM:
            return tuple(str(each[2]) for each in _tensors(_list(self.workload)))
        return tuple(str(each[1]) for each in _tensors(self.extra.get("args_info"))[:-1])


def described(records: Records, numbers: Codes) -> tuple[list[Description], Codes]:
    """The distinct descriptions of these rows, and the index of each row's description."""
    joined = np.zeros(len(numbers), np.int64)
    said: list[tuple[list[str], Codes]] = []
    for name in _COLUMNS:
        column = records.table.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
        texts = column.dictionary.to_pylist()
        if name == "extra":
            texts = [text if any(f'"{key}":' in text for key in _TELLING) else "" for text in texts]
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        of_text = np.array([places[text] for text in texts], np.int64)
        codes = of_text[column.indices.to_numpy(zero_copy_only=False)[numbers]]
        # Renumbered after each column: the product of all cardinalities would overflow.
        joined = np.unique(joined * len(places) + codes, return_inverse=True)[1]
        said.append((list(places), codes))
    first = np.unique(joined, return_index=True)[1].tolist()
    descriptions = []
    for row in first:
        format, workload, target, device, extra = (texts[codes[row]] for texts, codes in said)
        descriptions.append(Description(format, workload, target, device, told_in(extra)))
    return descriptions, joined


def task_context(
    format: str, workload: str, flops: Flops | None, extra: Mapping[str, Any]
) -> TaskContext:
    """From the columns of a record; what cannot be parsed is unknown."""
    shapes, name = extra.get("args_info"), extra.get("operator", "")
    arguments, operator = _arguments(shapes), name if isinstance(name, str) else ""
    if format == AUTOTVM:
        arguments, operator = _of_autotvm(workload)
    elif format == AUTO_SCHEDULER:
        arguments, operator = _of_auto_scheduler(workload, flops.rule if flops else "")
    count = flops.count if flops and flops.count else 0.0
    return TaskContext(arguments, count, operator)


def _of_autotvm(workload: str) -> tuple[tuple[Shape, ...], str]:
    value = _list(workload)
    known = [_shape(each[1]) for each in _tensors(value)]
    shapes = tuple(shape for shape in known if shape is not None)
    # Outputs come last, and this format does not record them.
    return (*shapes, ()) if shapes else (), str(value[0]) if value else ""


def _of_auto_scheduler(workload: str, rule: str) -> tuple[tuple[Shape, ...], str]:
    value = _list(workload)
    if not value:
        return (), ""
    shapes = tuple(shape for each in value[1:] if (shape := _shape(each)) is not None)
    name = str(value[0])
    if not is_digest(name):
        return shapes, name
    if "Winograd" in rule:
        return shapes, "winograd"
    if "contraction" not in rule:
        return shapes, "elementwise" if rule else ""
    return shapes, "conv" if len(shapes) > 1 and min(map(len, shapes[:2])) >= 4 else "matmul"


def _list(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _tensors(value: Any) -> list[list[Any]]:
    """The tensors of a list of arguments: `["TENSOR", ...]` of three each."""
    arguments = value if isinstance(value, list) else []
    return [
        each
        for each in arguments
        if isinstance(each, list) and len(each) == 3 and each[0] == "TENSOR"
    ]


def _arguments(value: Any) -> tuple[Shape, ...]:
    """The shapes of arguments in the form `["TENSOR", dtype, shape]`."""
    shapes = [_shape(each[2]) for each in _tensors(value)]
    return tuple(shape for shape in shapes if shape is not None)


def _shape(value: Any) -> Shape | None:
    if isinstance(value, list) and all(isinstance(n, int) and 0 <= n < 2**62 for n in value):
        return tuple(value)
    return None
