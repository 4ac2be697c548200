"""Reads a network from a file, a folder or the zoo, and hands it over as Relax.

Importing this package imports neither TVM nor torch: loading a network does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunefleet.compiler.frontends.examples import with_examples
from tunefleet.compiler.frontends.huggingface_ import HuggingFaceFrontend
from tunefleet.compiler.frontends.imported import (
    Frontend,
    ImportedNetwork,
    ImportRequest,
    Reference,
    Segment,
)
from tunefleet.compiler.frontends.keras_ import KerasFrontend
from tunefleet.compiler.frontends.onnx_ import OnnxFrontend
from tunefleet.compiler.frontends.spec import (
    check_precision,
    in_floats,
    network_bytes,
    network_digest,
    network_name,
    network_places,
    source_path,
    wanted_precision,
)
from tunefleet.compiler.frontends.tensorflow_ import SavedModelFrontend
from tunefleet.compiler.frontends.tflite_ import TFLiteFrontend
from tunefleet.compiler.frontends.torch_ import TorchFrontend
from tunefleet.compiler.frontends.zoo_ import ZooFrontend
from tunefleet.core.ids import digest
from tunefleet.core.importing import ImportOptions
from tunefleet.core.shapes import MOST_VARIANTS
from tunefleet.errors import InputError
from tunefleet.system.scratch import scratch_folder

__all__ = [
    "FRONTENDS",
    "Frontend",
    "ImportRequest",
    "ImportedNetwork",
    "Reference",
    "Segment",
    "check_precision",
    "in_floats",
    "load_network",
    "load_networks",
    "network_bytes",
    "network_digest",
    "network_name",
    "network_places",
    "temporary_folder",
    "wanted_precision",
]

FRONTENDS: tuple[Frontend, ...] = (
    ZooFrontend(),
    OnnxFrontend(),
    TorchFrontend(),
    TFLiteFrontend(),
    KerasFrontend(),
    SavedModelFrontend(),
    HuggingFaceFrontend(),
)


def load_network(
    spec: str | os.PathLike[str], request: ImportRequest | None = None
) -> ImportedNetwork:
    """Loads ``zoo:NAME?key=value``, a SavedModel or Hugging Face folder, or an ``.onnx``, ``.pt2``,
    ``.tflite`` or ``.keras`` file at one choice of shapes.

    Without a `request`, files of segments go to a temporary folder. Raises InputError when the
    source is wrong, and SetupError when a package that reads it is not installed.
    """
    text = os.fspath(spec)
    request = request or ImportRequest(temporary_folder())
    for frontend in FRONTENDS:
        if frontend.accepts(text):
            imported = with_examples(frontend.load(text, request), request.inputs)
            if not request.shapes and not request.inputs:
                return imported
            # The same file at other shapes is another network, and with other inputs another check.
            shapes = [str(spec) for spec in imported.info.inputs]
            asked: list[Any] = [imported.info.digest, shapes, imported.info.constants]
            asked += [file.content for file in request.inputs]
            own = digest(asked, len(imported.info.digest))
            return replace(imported, info=replace(imported.info, digest=own))
    source_path(text)
    raise AssertionError(f"{text}: a suffix without a frontend")


@lru_cache(maxsize=1)
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return scratch_folder("import")


def temporary_folder() -> Path:
    """Where files of segments go for those who name no folder; it lives as long as the process."""
    return Path(_temporary().name)


def load_networks(
    spec: str | os.PathLike[str], folder: Path, options: ImportOptions
) -> Iterator[ImportedNetwork]:
    """The network at every combination of the shapes that were asked for, one after the other:
    each may hold all weights."""
    variants = options.shapes.variants()
    if len(variants) > MOST_VARIANTS:
        raise InputError(
            f"{spec}: {len(variants)} combinations of shapes were asked for, at most "
            f"{MOST_VARIANTS} make one artifact",
            cure="give fewer values, or tune them apart",
        )
    return (
        load_network(
            spec, ImportRequest(folder, each, options.whole, options.trust, options.inputs)
        )
        for each in variants
    )
