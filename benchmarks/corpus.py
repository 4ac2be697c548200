"""Networks of other packages, made into files as their users make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Form = Literal["pt2", "onnx", "onnx-dynamic"]
FORMS: tuple[Form, ...] = ("pt2", "onnx", "onnx-dynamic")


@dataclass(frozen=True)
class Example:
    """A module in eval mode with random weights, and what it is called with.

    `names` are the tensors among its arguments in their order, as ONNX inputs are named.
    `dynamic` gives the free axes of each of them: axis to a name such as `batch` or `sequence`.
    `traced` networks become ONNX through TorchScript, where `torch.export` is known to fail.
    """

    module: Any
    inputs: tuple[Any, ...]
    names: tuple[str, ...]
    dynamic: dict[str, dict[int, str]]
    traced: bool = False


@dataclass(frozen=True)
class Architecture:
    """One network of a package. `family` groups variants of one design; torch itself can export
    it in `forms`."""

    package: str
    name: str
    family: str
    build: Callable[[], Example]
    forms: tuple[Form, ...] = FORMS


def architectures(package: str) -> Iterator[Architecture]:
    """The networks taken from torchvision, timm or transformers."""
    if package == "torchvision":
        from corpus_torchvision import networks
    elif package == "timm":
        from corpus_timm import networks
    else:
        from corpus_transformers import networks
    return iter(networks())


def export(example: Example, form: Form, path: Path) -> None:
    """Write the network to `path` in the given form. Whatever torch's exporter raises escapes.

    What torch's newer ONNX exporter fails on is written by the older one, as its users do."""
    import torch

    if form == "pt2":
        with torch.no_grad():
            torch.export.save(torch.export.export(example.module, example.inputs), path)
        return
    free = example.dynamic if form == "onnx-dynamic" else {}
    dims = {n: torch.export.Dim(n) for axes in free.values() for n in axes.values()}
    shapes = tuple({a: dims[n] for a, n in free.get(name, {}).items()} for name in example.names)
    inputs = tuple(_several(x, axes) for x, axes in zip(example.inputs, shapes, strict=True))
    common: dict[str, Any] = {"input_names": list(example.names), "verbose": False}
    if not example.traced:
        dynamic = shapes if free else None
        try:
            torch.onnx.export(
                example.module, inputs, str(path), dynamo=True, dynamic_shapes=dynamic, **common
            )
            return
        except torch.onnx.errors.OnnxExporterError as exc:
            print(f"{path.name}: traced instead: {str(exc).splitlines()[-1][:200]}")
    torch.onnx.export(
        example.module, inputs, str(path), dynamo=False, dynamic_axes=free or None, **common
    )


def _several(x: Any, axes: Iterable[int]) -> Any:
    """An input with two of each free axis that it has one of: torch takes ones to be fixed."""
    for axis in axes:
        if x.shape[axis] == 1:
            x = x.repeat_interleave(2, axis)
    return x
