"""Models of other packages that are torch modules inside: exported here, at fixed shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.compiler.frontends.blame import gist
from tunefleet.compiler.frontends.free import FixedInputs
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest
from tunefleet.compiler.frontends.spec import network_digest, network_name, shown
from tunefleet.compiler.frontends.torch_ import TorchReference, TorchSource, import_program
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, raise_mistake

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module


def export_module(
    module: Module, arrays: Sequence[np.ndarray[Any, Any]], told: str, cure: str
) -> ExportedProgram:
    """The program of a module for these inputs. Raises InputError `told`: why not."""
    import torch

    tensors = tuple(torch.from_numpy(array) for array in arrays)
    try:
        with torch.no_grad():
            return torch.export.export(module.eval(), tensors, strict=False)
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(f"{told}: {gist(exc)}", cure=cure) from exc


def import_exported(
    program: ExportedProgram,
    again: TorchSource,
    fixed: FixedInputs,
    request: ImportRequest,
    path: Path,
    source: str,
) -> ImportedNetwork:
    """The network of a program that was exported from the model at `path`. `again` exports it in
    another process, to be measured there."""
    imported = import_program(
        program,
        TorchReference(again),
        replace(request, shapes=ShapeRequest()),
        what=shown(path),
        name=network_name(path),
        source=source,
        digest=network_digest(path),
        input_names=[spec.name for spec in fixed.specs],
    )
    return replace(imported, notes=(*fixed.notes, *imported.notes))
