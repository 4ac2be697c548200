"""Opens the source framework of a network again, from what its import wrote down of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tunefleet.compiler.frontends.imported import Reference
from tunefleet.compiler.frontends.onnx_ import OnnxReference
from tunefleet.compiler.frontends.tensorflow_ import SavedModelReference
from tunefleet.compiler.frontends.tflite_ import TFLiteReference
from tunefleet.compiler.frontends.torch_ import TorchReference, TorchSource

_OPENERS: dict[str, Callable[[Mapping[str, Any]], Reference]] = {
    "onnx": OnnxReference.of,
    "saved_model": SavedModelReference.of,
    "tflite": TFLiteReference.of,
    "torch": lambda value: TorchReference(TorchSource.of(value)),
}


def reference_of(value: Mapping[str, Any], gpu: int | None = None) -> Reference:
    """The reference that described itself so (`Reference.describe`), on the GPU of this number
    where the framework runs there."""
    reference = _OPENERS[value["kind"]](value)
    if gpu is not None and isinstance(reference, TorchReference):
        reference.move_to_gpu(gpu)
    return reference


def runs_on_gpu(value: Mapping[str, Any], gpu: int) -> bool:
    """Whether that reference runs on a GPU."""
    reference = _OPENERS[value["kind"]](value)
    return isinstance(reference, TorchReference) and reference.move_to_gpu(gpu)
