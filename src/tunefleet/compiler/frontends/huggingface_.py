"""Hugging Face folders: `config.json` and safetensors, the model exported here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.compiler.frontends.blame import gist
from tunefleet.compiler.frontends.free import fixed_inputs
from tunefleet.compiler.frontends.huggingface_config import check_config
from tunefleet.compiler.frontends.huggingface_inputs import check_inputs, examples, inputs_of
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest
from tunefleet.compiler.frontends.spec import (
    CONFIG_FILE,
    is_huggingface,
    listed,
    shown,
    source_path,
)
from tunefleet.compiler.frontends.torch_ import TorchSource
from tunefleet.compiler.frontends.torch_exported import export_module, import_exported
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.network import TensorSpec
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.packages import require

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class HuggingFaceFrontend:
    """Reads folders as `from_pretrained` does; runs no code from them and never asks a network.

    Weights are computed in float32 whatever they are stored in.
    """

    name = "huggingface"

    def accepts(self, spec: str) -> bool:
        return is_huggingface(spec)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        path = source_path(spec)
        what = shown(path)
        check_config(path, what)
        with quiet():
            require(what, ("torch", "transformers"), "pip install tunefleet[huggingface]")
        with quiet(), _offline():
            model, notes = _read(path, what)
            inputs, defaults = inputs_of(model, path, what)
            fixed = fixed_inputs(inputs, request.shapes, what, defaults)
            check_inputs(model.config, fixed.dims, what)
            program = _export(model, fixed.specs, what)
            again = TorchSource("huggingface_", str(path.absolute()), fixed.specs)
            imported = import_exported(program, again, fixed, request, path, self.name)
        return replace(imported, notes=(*notes, *imported.notes))


def program_of(source: TorchSource) -> ExportedProgram:
    """The model exported again, in a process that measures it."""
    path = Path(source.spec)
    what = shown(path)
    with quiet(), _offline():
        return _export(_read(path, what)[0], source.inputs, what)


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Nothing is asked of the hub, such as the weights of a backbone that a configuration names."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _read(path: Path, what: str) -> tuple[Any, tuple[str, ...]]:
    """The model in eval mode, and what the user should know of its weights."""
    import torch
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what}: transformers cannot read its {CONFIG_FILE}: {gist(exc)}",
            cure="save the model again with save_pretrained",
        ) from exc
    stored = getattr(config, "dtype", None)
    if getattr(config, "quantization_config", None) is not None:
        raise InputError(
            f"{what} holds quantised weights", cure="save the model in float32 or a half type"
        )
    model_class = _class(config, what)
    try:
        model, report = model_class.from_pretrained(
            path,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told below, by their names
        )
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what}: transformers cannot load {model_class.__name__}: {gist(exc, 160)}",
            cure="save the model again with save_pretrained",
        ) from exc
    others = sorted(str(key[0]) for key in report["mismatched_keys"])
    if others:
        raise InputError(
            f"{what} has weights of other shapes than {model_class.__name__}: {listed(others, 3)}",
            cure="save the model again with save_pretrained",
        )
    absent = sorted(map(str, report["missing_keys"]))
    if absent:
        raise InputError(
            f"{what} lacks weights of {model_class.__name__}: {listed(absent, 3)}",
            cure=f"save the whole model with save_pretrained, or name the class that it is in "
            f"architectures of {CONFIG_FILE}",
        )
    return model.eval(), _notes(stored, report, model_class)


def _class(config: Any, what: str) -> Any:
    """The class that `architectures` names, among those of transformers itself."""
    import transformers

    names = getattr(config, "architectures", None)
    if not isinstance(names, list) or not names:
        raise InputError(
            f"{what}: its {CONFIG_FILE} names no class in architectures",
            cure='add the class that it was saved from, such as "architectures": ["BertModel"]',
        )
    architecture = getattr(transformers, str(names[0]), None)
    if isinstance(architecture, type) and issubclass(architecture, transformers.PreTrainedModel):
        return architecture
    raise InputError(
        f"{what} is a {str(names[0])[:60]}, which transformers {transformers.__version__} does "
        "not have; code that comes with a model is not run",
        cure="export the module with torch.export and give the .pt2 file",
    )


def _notes(stored: Any, report: Mapping[str, Any], model_class: type) -> tuple[str, ...]:
    notes = []
    dtype = str(stored).removeprefix("torch.")
    if dtype in ("float16", "bfloat16", "float64"):
        notes.append(f"its weights are stored as {dtype} and computed in float32")
    unused = sorted(map(str, report["unexpected_keys"]))
    if unused:
        notes.append(f"weights that {model_class.__name__} does not use: {listed(unused, 3)}")
    return tuple(notes)


def _export(model: Any, inputs: Sequence[TensorSpec], what: str) -> ExportedProgram:
    import torch

    names = [spec.name for spec in inputs]

    class Network(torch.nn.Module):
        """Takes tensors one by one, and returns those among the outputs by name."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            outputs = self.model(**dict(zip(names, tensors, strict=True)), return_dict=True)
            return {k: v for k, v in outputs.items() if isinstance(v, torch.Tensor)}

    return export_module(
        Network(),
        examples(inputs, model.config),
        f"{what}: torch cannot export {type(model).__name__} for "
        f"{listed([str(spec) for spec in inputs], 3)}",
        cure="try other shapes (--dim), or export the module yourself and give the .pt2 file",
    )
