"""Outputs of a network for samples, and the loss of a quantised network on its calibration
samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefleet.artifacts.onnx_session import open_session, session_options
from tunefleet.compiler.quantize.calibration import SampleInputs
from tunefleet.core.precision import OutputLoss
from tunefleet.system.progress import working_on

Array = NDArray[Any]

#: The outputs of each sample by name.
Outputs = list[dict[str, Array]]


def finite(outputs: dict[str, Array]) -> bool:
    """Whether all outputs of a sample are finite."""
    return all(np.isfinite(a).all() for a in outputs.values() if a.dtype.kind == "f")


def outputs_of(path: Path, samples: Sequence[SampleInputs]) -> Outputs:
    """The outputs by ONNX Runtime. Raises its errors."""
    return list(_runs(path, samples))


def watched(
    path: Path, names: Sequence[str], samples: Sequence[SampleInputs]
) -> Iterator[dict[str, Any]]:
    """Intermediate values of a network for each sample, one at a time: those of all samples take
    gigabytes. Leaves a file next to the network's, where its external weights are found."""
    model = onnx.load(path, load_external_data=False)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    watching = path.with_name(f"watched-{path.name}")
    onnx.save(model, watching)
    return _runs(watching, samples)


def _runs(path: Path, samples: Sequence[SampleInputs]) -> Iterator[dict[str, Any]]:
    session = open_session(path, session_options())
    names = [output.name for output in session.get_outputs()]

    def outputs(sample: SampleInputs) -> dict[str, Any]:
        working_on("a sample of the calibration")
        return dict(zip(names, session.run(names, dict(sample)), strict=True))

    return map(outputs, samples)


def losses_of(before: Outputs, after: Outputs) -> tuple[OutputLoss, ...]:
    """The loss of each output over all samples."""
    return tuple(
        output_loss(name, [(a[name], b[name]) for a, b in zip(before, after, strict=True)])
        for name in before[0]
    )


def output_loss(name: str, pairs: Sequence[tuple[Array, Array]]) -> OutputLoss:
    """The loss of one output from its values before and after, per sample."""
    before = np.concatenate([a.astype("float64").ravel() for a, _ in pairs])
    after = np.concatenate([b.astype("float64").ravel() for _, b in pairs])
    size = float(np.sqrt(np.mean(before**2)))
    error = float(np.sqrt(np.mean((after - before) ** 2))) / (size or 1.0)
    return OutputLoss(name, error, _top1(pairs))


def _top1(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    """Rows of two or more floats count as class scores."""
    if not all(a.ndim == 2 and a.shape[1] > 1 and a.dtype.kind == "f" for a, _ in pairs):
        return None
    same = [a.argmax(1) == b.argmax(1) for a, b in pairs]
    return float(np.mean(np.concatenate(same)))
