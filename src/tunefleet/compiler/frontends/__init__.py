"""Reads a network from a file, a SavedModel or the zoo, and hands it over as Relax.

Importing this package imports neither TVM nor torch: loading a network does.
"""

from __future__ import annotations

import os

from tunefleet.compiler.frontends.imported import Frontend, ImportedNetwork, Reference
from tunefleet.compiler.frontends.keras_ import KerasFrontend
from tunefleet.compiler.frontends.onnx_ import OnnxFrontend
from tunefleet.compiler.frontends.spec import network_digest, network_name, source_path
from tunefleet.compiler.frontends.tensorflow_ import SavedModelFrontend
from tunefleet.compiler.frontends.tflite_ import TFLiteFrontend
from tunefleet.compiler.frontends.torch_ import TorchFrontend
from tunefleet.compiler.frontends.zoo_ import ZooFrontend

__all__ = [
    "FRONTENDS",
    "Frontend",
    "ImportedNetwork",
    "Reference",
    "load_network",
    "network_digest",
    "network_name",
]

FRONTENDS: tuple[Frontend, ...] = (
    ZooFrontend(),
    OnnxFrontend(),
    TorchFrontend(),
    TFLiteFrontend(),
    KerasFrontend(),
    SavedModelFrontend(),
)


def load_network(spec: str | os.PathLike[str]) -> ImportedNetwork:
    """Loads ``zoo:NAME?key=value``, a SavedModel folder, or an ``.onnx``, ``.pt2``, ``.tflite`` or
    ``.keras`` file.

    Raises InputError when the source is wrong or uses what TVM cannot import, and SetupError when
    a package that reads it is not installed.
    """
    text = os.fspath(spec)
    for frontend in FRONTENDS:
        if frontend.accepts(text):
            return frontend.load(text)
    source_path(text)
    raise AssertionError(f"{text}: a suffix without a frontend")
