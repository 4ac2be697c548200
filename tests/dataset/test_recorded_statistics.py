"""Statistics of logs that others published, against what is known of them."""

from __future__ import annotations

import ast
import json
import re
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest

from tunefleet.dataset import codecs
from tunefleet.dataset.flops import flops_by_workload
from tunefleet.dataset.importing import find_logs
from tunefleet.dataset.primitives import failure_name
from tunefleet.dataset.statistics import DatasetStatistics

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data with recorded logs is not there"),
]


@pytest.mark.parametrize(
    "folder", ["droplet_a72_ansor", "droplet_gtx1650_ansor", "tvm_ci_logs", "tlcbench_ansor"]
)
def test_counts_are_those_of_the_readme(folder: str) -> None:
    statistics = DatasetStatistics()
    for log, format in find_logs([DATA / folder]).found:
        for batch in codecs.read(log, format=format):
            statistics.add(batch)
    found = statistics.to_json()
    (device,) = found["devices"]
    readme = (DATA / folder / "README.md").read_text()
    assert _number(r"records: (\d+)", readme) == found["records"]
    assert _number(r"ok \(error 0\): (\d+)", readme) == found["valid"]
    assert _number(r"tasks: (\d+)", readme) == found["tasks"]
    errors = {int(n): count for n, count in _literal(r"errors: (\{.*?\})", readme).items()}
    named = {failure_name(n): count for n, count in errors.items() if n}
    assert named == found["failures"]
    steps = dict(_literal(r"- steps: (\[\[.*?\]\]);", readme))
    assert steps == {row["kind"]: row["total"] for row in device["primitives"]}
    low, high = _literal(r"steps per record (\[.*?\])", readme)
    assert (low, high) == (found["sequence_length"]["min"], found["sequence_length"]["max"])


def _number(pattern: str, text: str) -> int:
    return int(re.search(pattern, text)[1])  # type: ignore[index]


def _literal(pattern: str, text: str) -> Any:
    return ast.literal_eval(re.search(pattern, text)[1])  # type: ignore[index]


def _operations(name: str, arguments: list[Any]) -> int | None:
    """Of the operators that Roller's logs name with all their arguments."""
    if name in ("matmul_layer", "batch_matmul_layer"):
        return 2 * prod(arguments)
    if name not in ("conv2d_layer", "depthwise_conv2d_layer"):
        return None
    *shape, window, _, stride, padding = arguments
    batch, channels, height, width, *made = shape
    cut = 0 if padding == "SAME" else window - 1
    places = ceil((height - cut) / stride) * ceil((width - cut) / stride)
    return 2 * batch * places * channels * prod(made) * window * window


@pytest.mark.parametrize(
    ("folder", "logs"), [("roller_v100_scale_out", 6), ("roller_v100_ops", 12)]
)
def test_flops_are_those_of_the_operators_that_keys_name(folder: str, logs: int) -> None:
    found = find_logs([DATA / folder]).found
    checked = 0
    for log, format in found[:: len(found) // logs]:
        batch = next(codecs.read(log, format=format))
        for (_, workload), flops in flops_by_workload([batch]).items():
            name, *arguments = json.loads(workload)
            operations = _operations(name, arguments)
            if operations is not None:
                assert operations == flops.count
                checked += 1
    assert checked >= 5
