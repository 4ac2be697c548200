"""Segments: parts of a network that stay in its source framework, inside the compiled module.

The module calls each as a global function named by the digest of its file. The files lie in the
folder `segments` beside the module; whoever loads the module makes the functions first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.compiler.artifact import FOLDER
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.ids import digest
from tunefleet.core.network import SEGMENT_PREFIX
from tunefleet.errors import SetupError

tvm = load_tvm()


Array = np.ndarray[Any, Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]


def segment_name(content: bytes | str) -> str:
    """The name of the function of a segment, from its content or what identifies it."""
    return SEGMENT_PREFIX + digest(content, 16)


def segment_file(folder: Path, name: str, suffix: str) -> Path:
    """Where the file of a segment lies in the folder of a module; the folder is made."""
    directory = folder / FOLDER
    directory.mkdir(parents=True, exist_ok=True)
    return directory / (name.removeprefix(SEGMENT_PREFIX) + suffix)


def register_segments(folder: Path) -> None:
    """Makes a function of every segment beside a module in `folder`. Nothing is opened before the
    first call."""
    for path in sorted((folder / FOLDER).glob("*")):
        opener = _OPENERS.get(path.suffix)
        if opener is not None:
            tvm.register_global_func(
                SEGMENT_PREFIX + path.stem, _Segment(path, opener), override=True
            )


class _Segment:
    """Runs one segment on the tensors that the module hands over, without copying them."""

    def __init__(self, path: Path, opener: Callable[[Path, int], Run]) -> None:
        self._path = path
        self._opener = opener
        self._run: Run | None = None

    def __call__(self, *tensors: Any) -> Any:
        if self._run is None:
            self._run = self._opener(self._path, _threads())
        outputs = self._run([np.from_dlpack(tensor) for tensor in tensors])
        found = [tvm.runtime.tensor(np.require(output, requirements="C")) for output in outputs]
        return found[0] if len(found) == 1 else found


def _threads() -> int:
    """As many as the kernels of this process use (`set_threads`)."""
    return int(os.environ.get("TVM_NUM_THREADS", "1"))


def _open_onnx(path: Path, threads: int) -> Run:
    try:
        import onnxruntime
    except ImportError as exc:
        raise SetupError(
            "a part of this network runs in ONNX Runtime, which is not installed here",
            cure="pip install tunefleet[onnx]",
        ) from exc
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Threads that spin after their part is done would disturb the kernels that come next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        outputs: Sequence[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
        return outputs

    return run


def _open_torch(path: Path, threads: int) -> Run:
    try:
        import torch
    except ImportError as exc:
        raise SetupError(
            "a part of this network runs in PyTorch, which is not installed here",
            cure="pip install tunefleet[torch]",
        ) from exc
    from tunefleet.compiler.frontends.torch_file import open_program

    module = open_program(path).module()

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        torch.set_num_threads(threads)
        with torch.no_grad():
            outputs = module(*[torch.from_numpy(array) for array in arrays])
        found = outputs if isinstance(outputs, tuple | list) else [outputs]
        return [output.contiguous().numpy() for output in found]

    return run


_OPENERS: dict[str, Callable[[Path, int], Run]] = {".onnx": _open_onnx, ".pt2": _open_torch}
