"""What a `.pt2` file takes of other modules than torch itself, imported before torch reads it.

Without the module that registers an operator, torch makes a name of it that nothing can call; a
weight of a class of its own is read only once its package says that this is safe.
"""

from __future__ import annotations

import io
import json
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tunefleet.artifacts.torch_safety import dictionaries
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.packages import require

_OPERATOR = "torch.ops."
#: The namespace of branches and loops, which torch does not register with the others.
_CONTROL = "higher_order"
#: By the namespace of operators, or the package of a class of weights: the module that registers
#: them.
_MODULES = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao.quantization",
    "torchvision": "torchvision",
    "transformers": "transformers.integrations.moe",
}


def import_libraries(reader: Any, path: Path) -> None:
    """Imports what the operators and weights of an archive need; `reader` is torch's own. Raises
    SetupError where that is not installed, and InputError where nothing registers an operator."""
    namespaces = set(_namespaces(reader))
    for name in sorted({*namespaces, *_packages(reader)} & set(_MODULES)):
        module = _MODULES[name]
        require(str(path), (module,), f"pip install {module.partition('.')[0]}")
    registered = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}
    for name in sorted(namespaces - registered - {_CONTROL}):
        raise InputError(
            f"{path} calls operators of {name}, which nothing here registers",
            cure="tune the module from Python, once what registers them is imported",
        )


def _records(reader: Any, prefix: str, suffix: str) -> Iterator[tuple[str, Any]]:
    """Names and content of records of JSON; what is none is for torch to refuse."""
    for name in reader.get_all_records():
        if name.startswith(prefix) and name.endswith(suffix):
            try:
                yield name, json.loads(reader.get_record(name))
            except (ValueError, RecursionError):
                continue


def _namespaces(reader: Any) -> Iterator[str]:
    """The namespaces of all operators that nodes call, those of graphs within graphs too."""
    for each in dictionaries([program for _, program in _records(reader, "models/", "")]):
        target = each.get("target")
        if isinstance(target, str) and target.startswith(_OPERATOR):
            namespace, _, operator = target.removeprefix(_OPERATOR).partition(".")
            if operator:  # else a function of torch's own, which is refused as unsafe
                yield namespace


def _packages(reader: Any) -> Iterator[str]:
    """The packages that define the classes of weights which are no plain tensors."""
    for name, listed in _records(reader, "data/", "_config.json"):
        try:
            places = [each["path_name"] for each in listed["config"].values() if each["use_pickle"]]
            records = [f"{posixpath.dirname(name)}/{place}" for place in places]
        except (KeyError, TypeError, AttributeError):
            continue  # no list of weights, as whoever opens the file says
        for record in records:
            yield from {each.partition(".")[0] for each in _classes(reader, record)}


def _classes(reader: Any, record: str) -> list[str]:
    """What a record of pickle names, without running it."""
    try:
        content = io.BytesIO(reader.get_record(record))
        return torch.serialization.get_unsafe_globals_in_checkpoint(content)
    except Exception as error:
        raise_mistake(error)
        return []  # damaged: torch says so where it reads the record
