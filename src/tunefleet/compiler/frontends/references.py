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


def reference_of(value: Mapping[str, Any]) -> Reference:
    """The reference that described itself so (`Reference.describe`)."""
    return _OPENERS[value["kind"]](value)
