"""Keras models, by way of Keras's own torch backend: TensorFlow is not needed."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES, lacking, seeded_inputs
from tunefleet.compiler.frontends.free import FixedInputs, FreeInput, fixed_inputs
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest
from tunefleet.compiler.frontends.spec import (
    KERAS_SUFFIX,
    shown,
    source_path,
)
from tunefleet.compiler.frontends.torch_ import TorchSource
from tunefleet.compiler.frontends.torch_exported import export_module, import_exported
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.network import TensorSpec
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, SetupError, raise_mistake
from tunefleet.system.packages import require

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_PACKAGES = ("torch", "keras")
_INSTALL = "pip install tunefleet[keras]"


class KerasFrontend:
    """Reads ``.keras`` files of functional and sequential models; runs no code from them."""

    name = "keras"

    def accepts(self, spec: str) -> bool:
        return spec.lower().endswith(KERAS_SUFFIX)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        path = source_path(spec)
        what = shown(path)
        with quiet():
            keras = _keras(what)
            with keras.device("cpu"):
                model = _read(keras, path, what)
                fixed = _inputs(model, request.shapes, what)
                program = _export(model, fixed.specs, what)
            again = TorchSource("keras_", str(path.absolute()), fixed.specs)
            imported = import_exported(program, again, fixed, request, path, self.name)
            # What it was exported with is no choice of its author.
            return replace(imported, drawn=True)


def program_of(source: TorchSource) -> ExportedProgram:
    """The model exported again, in a process that measures it."""
    path = Path(source.spec)
    what = shown(path)
    keras = _keras(what)
    with quiet(), keras.device("cpu"):
        return _export(_read(keras, path, what), source.inputs, what)


def _keras(what: str) -> Any:
    """Keras on torch; raises SetupError where it is missing, does not load, or runs on something
    else."""
    prefer_torch(what)
    require(what, _PACKAGES, _INSTALL)
    import keras

    if keras.config.backend() != "torch":
        raise SetupError(
            f"{what} needs Keras on torch, but this process uses it on {keras.config.backend()}",
            cure="set KERAS_BACKEND=torch before Keras is imported",
        )
    return keras


def prefer_torch(what: str) -> None:
    """Imports Keras on torch, unless it is imported already, or one of them is missing; raises
    SetupError where it does not load.

    Keras reads its backend from the environment, once, as it is imported; TensorFlow imports it.
    """
    if "keras" in sys.modules or not all(map(importlib.util.find_spec, _PACKAGES)):
        return
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = "torch"
    try:
        require(what, _PACKAGES, _INSTALL)
    finally:
        if before is None:
            del os.environ["KERAS_BACKEND"]
        else:
            os.environ["KERAS_BACKEND"] = before


def _read(keras: Any, path: Path, what: str) -> Any:
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as exc:
        raise_mistake(exc)
        gist = " ".join(str(exc).split())
        if "Lambda" in gist or "unsafe" in gist.lower():
            raise InputError(
                f"{what} holds Python code (a Lambda layer), which is not run",
                cure="replace it by a layer or an operation of keras.ops, and save the model again",
            ) from exc
        raise InputError(
            f"{what} is not a readable Keras model: {type(exc).__name__}: {gist[:120]}",
            cure=f"save it again with Keras {keras.__version__}, from layers of Keras alone",
        ) from exc


def _inputs(model: Any, shapes: ShapeRequest, what: str) -> FixedInputs:
    tensors = getattr(model, "inputs", None)
    if not tensors:
        raise InputError(
            f"{what} is a subclassed model, which does not say what its inputs are",
            cure="build it from keras.Input with the functional API, and save it again",
        )
    free = [FreeInput(t.name, tuple(t.shape), _dtype(t, what)) for t in tensors]
    return fixed_inputs(free, shapes, what)


def _dtype(tensor: Any, what: str) -> str:
    dtype = str(tensor.dtype)
    if dtype not in NUMPY_DTYPES:
        raise InputError(
            f"{what}: input {tensor.name} holds {dtype}, which {lacking(dtype)} does not have",
            cure="give it float32, float16 or integer inputs",
        )
    return dtype


def _export(model: Any, inputs: Sequence[TensorSpec], what: str) -> ExportedProgram:
    import torch

    class Network(torch.nn.Module):
        """Takes and returns tensors one by one, whatever structures the model has."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            given = list(tensors) if len(tensors) > 1 else tensors[0]
            outputs = torch.utils._pytree.tree_leaves(self.model(given, training=False))
            return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return export_module(
        Network(),
        seeded_inputs(inputs),
        f"{what}: torch cannot export it",
        cure="leave out layers whose shapes or branches depend on values",
    )
