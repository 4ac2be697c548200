"""Segments: parts of a network that stay in its source framework, inside the compiled module.

The module calls each as a global function named by the digest of its file. The files lie in the
folder `segments` beside the module; whoever loads the module makes the functions first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.artifacts.onnx_session import WRONG_FUSIONS, open_session, session_options
from tunefleet.artifacts.runtime import load_runtime, threads_here
from tunefleet.artifacts.tensors import Array, array_of, on_cpu, tensor_of
from tunefleet.core.ids import digest
from tunefleet.core.network import SEGMENT_PREFIX
from tunefleet.system.packages import require

#: The folder of segments beside a module.
FOLDER = "segments"

RunSegment = Callable[[Sequence[Array]], Sequence[Array]]


def segment_name(content: bytes | str) -> str:
    """The name of the function of a segment, from its content or what identifies it."""
    return SEGMENT_PREFIX + digest(content, 16)


def segment_file(folder: Path, name: str, suffix: str) -> Path:
    """Where the file of a segment lies in the folder of a module; the folder is made."""
    directory = folder / FOLDER
    directory.mkdir(parents=True, exist_ok=True)
    return directory / (name.removeprefix(SEGMENT_PREFIX) + suffix)


def register_segments(folder: Path, gpu: int | None = None) -> list[str]:
    """Makes a function of every segment beside a module in `folder`; the names of these functions,
    for `release_segments`. Nothing is opened before the first call. `gpu` is the number of the GPU
    that runs the module, None for the CPU."""
    names = []
    for path in sorted((folder / FOLDER).glob("*")):
        opener = _OPENERS.get(path.suffix)
        if opener is None:
            continue
        name = SEGMENT_PREFIX + path.stem
        with _lock:
            segment = _registered.setdefault(name, _Segment(opener))
            segment.path = path  # equal content: a folder that is gone does no harm
            segment.users += 1
            segment.gpu = gpu
            load_runtime().register_global_func(name, segment, override=True)
        names.append(name)
    return names


def release_segments(names: Sequence[str]) -> None:
    """Close the segments that nobody uses any more: they hold weights."""
    for name in names:
        with _lock:
            segment = _registered[name]
            segment.users -= 1
            if not segment.users:
                del _registered[name]
                load_runtime().registry.remove_global_func(name)


class _Segment:
    """Runs one segment on the tensors that the module hands over: on the CPU without copying them,
    of a GPU with copies of them and of the outputs."""

    def __init__(self, opener: Callable[[Path, int], RunSegment]) -> None:
        self.path = Path()
        self.users = 0
        #: Where the outputs go of a segment without inputs.
        self.gpu: int | None = None
        self._opener = opener
        self._opening = threading.Lock()
        self._run: RunSegment | None = None

    def leave(self) -> RunSegment | None:
        """Forget what runs it, which is returned."""
        run, self._run, self._opening = self._run, None, threading.Lock()
        return run

    def __call__(self, *tensors: Any) -> Any:
        with self._opening:
            if self._run is None:
                self._run = self._opener(self.path, threads_here())
        outputs = self._run([array_of(tensor) for tensor in tensors])
        gpu = self.gpu
        if tensors:
            gpu = next((tensor.device.index for tensor in tensors if not on_cpu(tensor)), None)
        results = [tensor_of(np.asarray(output), gpu) for output in outputs]
        return results[0] if len(results) == 1 else results


def _forked() -> None:
    """What threads of the process before held nobody gives back, and what ran a segment there has
    threads that are not here: it is opened again. To close it would wait for them."""
    global _lock
    _lock = threading.Lock()
    for segment in _registered.values():
        _left.append(segment.leave())


os.register_at_fork(after_in_child=_forked)

_registered: dict[str, _Segment] = {}
_lock = threading.Lock()
#: What is not closed in a forked process.
_left: list[RunSegment | None] = []


def _open_onnx(path: Path, threads: int) -> RunSegment:
    require("a part of this network", ("onnxruntime",), "pip install tunefleet[onnx]")
    options = session_options(threads)
    # Threads that spin after their part is done would disturb the kernels that come next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = open_session(path, options, disabled_optimizers=WRONG_FUSIONS)
    names = [value.name for value in session.get_inputs()]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        outputs: Sequence[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
        return outputs

    return run


def _open_torch(path: Path, threads: int) -> RunSegment:
    require("a part of this network", ("torch",), "pip install tunefleet[torch]")
    import torch

    from tunefleet.artifacts.torch_file import open_program

    module = open_program(path).module()

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        torch.set_num_threads(threads)
        with torch.no_grad():
            outputs = module(*[torch.from_numpy(array) for array in arrays])
        tensors = outputs if isinstance(outputs, tuple | list) else [outputs]
        return [output.contiguous().resolve_neg().numpy() for output in tensors]

    return run


_OPENERS: dict[str, Callable[[Path, int], RunSegment]] = {".onnx": _open_onnx, ".pt2": _open_torch}
