"""Machines that run the functions of a loaded module, one call at a time, on CPU or GPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from tunefleet.artifacts.network import entry_name, fields_of, new_machine, separate
from tunefleet.artifacts.runtime import load_runtime
from tunefleet.artifacts.tensors import (
    ALIGNMENT,
    CPU,
    GPU,
    aligned,
    array_of,
    is_native,
    numpy_type,
    tensor_of,
    wait_for,
)
from tunefleet.artifacts.weights import Weights
from tunefleet.core.network import Signature
from tunefleet.errors import InputError


class ModuleMachine:
    """Runs a module's functions, on a GPU where one is named by its number."""

    def __init__(
        self,
        library: Any,
        weights: Weights | None,
        signatures: Sequence[Signature],
        gpu: int | None = None,
    ) -> None:
        self._machine = new_machine(library, gpu)
        self._weights = weights
        self._signatures = signatures
        self._gpu = gpu
        #: What several functions take is on the GPU once.
        self._on_gpu: dict[int, Any] = {}
        self._entries: dict[int, _Entry] = {}

    def run(self, index: int, inputs: Sequence[Any]) -> list[Any]:
        """Outputs for inputs of the signature `index`, as tensors where the function made them."""
        if index not in self._entries:
            self._entries[index] = self._entry(index)
        return self._entries[index].run(inputs)

    def _entry(self, index: int) -> _Entry:
        name = entry_name(index)
        function, signature = self._machine[name], self._signatures[index]
        if self._gpu is None:
            weights = self._weights.of(name) if self._weights else []
            return _Entry(function, weights, signature)
        for number in self._weights.entries.get(name, ()) if self._weights else ():
            if number not in self._on_gpu:
                assert self._weights is not None
                self._on_gpu[number] = tensor_of(array_of(self._weights.tensor(number)), self._gpu)
        numbers = self._weights.entries.get(name, []) if self._weights else []
        return _GpuEntry(function, [self._on_gpu[n] for n in numbers], signature, self._gpu)


class _Entry:
    """One function of a machine, with the memory for its inputs."""

    def __init__(self, function: Any, weights: list[Any], signature: Signature) -> None:
        self._function = function
        self._weights = weights
        self._places = {weight.data_ptr() for weight in weights}
        self._from_dlpack = load_runtime().from_dlpack
        self._names = [spec.name for spec in signature.inputs]
        self._types = [(spec.shape, numpy_type(spec.dtype)) for spec in signature.inputs]
        self._copies: list[Any] = [None] * len(self._types)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        tensors = [self._tensor(place, each) for place, each in enumerate(inputs)]
        outputs = fields_of(self._function(*tensors, *self._weights))
        return separate(outputs, {tensor.data_ptr() for tensor in tensors} | self._places)

    def _tensor(self, place: int, given: Any) -> Any:
        """An input in the runtime's form, without a copy where kernels can read it as it is."""
        shape, dtype = self._types[place]
        if not is_native(dtype):
            return tensor_of(np.asarray(given))
        is_array = isinstance(given, np.ndarray)
        if not is_array or (given.flags.c_contiguous and given.flags.writeable):
            tensor = self._read(place, given)
            if not is_array and tensor.device.dlpack_device_type() != CPU:
                raise InputError(
                    f"input {self._names[place]} is on {tensor.device}", cure="move it to the CPU"
                )
            if not tensor.data_ptr() % ALIGNMENT and tensor.is_contiguous():
                return tensor
        if self._copies[place] is None:
            memory = aligned(shape, dtype)
            self._copies[place] = memory, self._from_dlpack(memory)
        memory, tensor = self._copies[place]
        np.copyto(memory, given if is_array else np.from_dlpack(given))
        return tensor

    def _read(self, place: int, given: Any) -> Any:
        try:
            return self._from_dlpack(given)
        except (BufferError, RuntimeError, TypeError) as error:
            raise InputError(
                f"input {self._names[place]} cannot be read: {error}", cure="give a NumPy array"
            ) from error


class _GpuEntry(_Entry):
    """Kernels run on torch's current stream where the inputs are torch's, else on the default
    stream. A call on another stream than the one before waits for that: both use one memory."""

    def __init__(self, function: Any, weights: list[Any], signature: Signature, gpu: int) -> None:
        super().__init__(function, weights, signature)
        self._gpu = gpu
        self._stream = 0

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        stream = _torch_stream(inputs)
        if stream != self._stream:
            wait_for(self._gpu, self._stream)
            self._stream = stream
        with ExitStack() as using:
            if stream:
                runtime = load_runtime()
                place = runtime.device("cuda", self._gpu)
                using.enter_context(runtime.use_raw_stream(place, stream))
            return super().run(inputs)

    def _tensor(self, place: int, given: Any) -> Any:
        """Tensors of this GPU are read where they are, others are copied to it."""
        if isinstance(given, np.ndarray):
            return tensor_of(given, self._gpu)
        tensor = self._read(place, given)
        device = tensor.device
        if device.dlpack_device_type() == CPU:
            return tensor_of(array_of(tensor), self._gpu)
        if (device.dlpack_device_type(), device.index) != (GPU, self._gpu):
            raise InputError(
                f"input {self._names[place]} is on {device}, the network on cuda:{self._gpu}",
                cure=f"move it to cuda:{self._gpu}",
            )
        if not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT:
            raise InputError(
                f"input {self._names[place]} is not contiguous, or begins where vectors may not",
                cure="give a contiguous copy",
            )
        return tensor


def _torch_stream(inputs: Sequence[Any]) -> int:
    """The handle of torch's current stream where the first input is torch's on a GPU; else 0."""
    first: Any = inputs[0] if inputs else None
    if type(first).__module__.partition(".")[0] != "torch" or not first.is_cuda:
        return 0
    import torch

    return int(torch.cuda.current_stream(first.device).cuda_stream)
