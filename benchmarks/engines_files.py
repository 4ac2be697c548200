"""What `engines.py` measures: files of a network by its exporters, inputs, PyTorch's outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

#: Those that are given to tunefleet as .pt2; the others as .onnx.
_AS_PT2 = frozenset({"mobilenet_v2", "resnet50", "bert_base", "vit_small", "swin_tiny", "unet"})


def make_files(name: str, folder: Path, batch: int) -> dict[str, Any]:
    """The network in every form, its inputs and what PyTorch makes of them."""
    import numpy as np
    import torch

    from corpus import export
    from engines_networks import build

    example = build(name)
    if batch > 1:
        inputs = tuple(torch.cat([x.roll(n, -1) for n in range(batch)]) for x in example.inputs)
        example = replace(example, inputs=inputs)
    with torch.no_grad():
        outputs = example.module(*example.inputs)
    for kind, tensors in (("inputs", example.inputs), ("expected", outputs)):
        np.savez(folder / f"{kind}.npz", *(t.numpy() for t in tensors))
    for form in ("onnx", "pt2"):
        export(example, form, folder / f"network.{form}")
    parameters = sum(p.numel() for p in example.module.parameters())
    return {"parameters": parameters, "litert": _make_tflite(example, folder / "network.tflite")}


def _make_tflite(example: Any, path: Path) -> str:
    """Why there is no TFLite file, or ""."""
    try:
        import litert_torch
    except ImportError as error:
        return f"litert-torch is not installed: {error}"
    try:
        litert_torch.convert(example.module, example.inputs).export(str(path))
    except Exception as error:  # whatever the converter says of this network
        return f"litert-torch does not convert it: {' '.join(str(error).split())[:300]}"
    return ""


def step(path: Path, again: bool, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` gives, kept in a file that the next call reads instead."""
    if path.exists() and not again:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return kept
    made = make()
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(made, indent=1), encoding="utf-8")
    draft.replace(path)
    return made


def network_file(name: str, folder: Path, batch: int = 1) -> tuple[Path, dict[str, Any]]:
    """The file of a network that is tuned, made in a folder where it is not there, and what
    `make_files` says."""
    folder.mkdir(parents=True, exist_ok=True)
    files = step(folder / "files.json", False, partial(_in_process, name, folder, batch))
    return folder / ("network.pt2" if name in _AS_PT2 else "network.onnx"), files


def _in_process(name: str, folder: Path, batch: int) -> dict[str, Any]:
    """Exporters leave gigabytes behind in the process that calls them."""
    command = [sys.executable, __file__, name, str(folder), str(batch)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


if __name__ == "__main__":
    _name, _folder, _batch = sys.argv[1:]
    print("\n" + json.dumps(make_files(_name, Path(_folder), int(_batch))))
