"""A tuned network that stays loaded: what `tunefleet.load` gives."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NoReturn
from weakref import WeakSet

from tunefleet.artifacts.artifact import Artifact, check_files
from tunefleet.artifacts.cuda import load_cuda
from tunefleet.artifacts.machines import ModuleMachine
from tunefleet.artifacts.network import open_library
from tunefleet.artifacts.runtime import installed_versions, set_threads, with_pool
from tunefleet.artifacts.segments import register_segments, release_segments
from tunefleet.artifacts.tensors import array_of
from tunefleet.artifacts.weights import Weights, weights_path
from tunefleet.core.gpu import CUDA
from tunefleet.core.network import Signature
from tunefleet.core.numbers import count
from tunefleet.core.target import CudaTarget
from tunefleet.errors import InputError, SetupError
from tunefleet.hardware.gpu import check_runs_on, gpu_device
from tunefleet.hardware.processor import TILES, cpu_info, takes_tiles

#: Threads that kernels may have anywhere, and four for each core of a machine that has more.
_LEAST_OF_MOST = 64


class TunedModule:
    """A delivered module in memory: called with arrays, it returns the network's outputs.

    Inputs are NumPy arrays or what else has DLPack on the CPU (tensors of PyTorch or JAX);
    shapes and types must be those of one of `signatures`. Contiguous ones that begin at a multiple
    of 64 bytes, as PyTorch's do, are read where they are, others copied. Outputs are NumPy arrays,
    or torch tensors where the first input was one, in memory of their own.

    It may be called from any number of threads: as many calls run at once as the cores suffice for.

    A network that was tuned for a GPU runs on `gpu`, its number. Tensors of PyTorch and others on
    that GPU are read where they are, on torch's current stream, and so are the outputs then; NumPy
    arrays and tensors on the CPU are copied, and so are the outputs. One call runs at once.
    """

    def __init__(self, artifact: Artifact, threads: int | None = None, gpu: int = 0) -> None:
        self._gpu = gpu if isinstance(artifact.target, CudaTarget) else None
        check_runs_here(artifact, gpu)
        if self._gpu is not None:
            load_cuda()
        check_files(artifact, artifact.module)
        self.path = artifact.path
        self.name = artifact.network.name
        self.threads = artifact.target.threads if threads is None else _checked(threads)
        #: Inputs and outputs of each shape that it takes.
        self.signatures: tuple[Signature, ...] = artifact.network.signatures
        self._entries = {_types_of(s): i for i, s in enumerate(self.signatures)}
        self._segments = register_segments(self.path, self._gpu)
        self._library = open_library(artifact.module)
        weights = weights_path(artifact.module)
        self._weights = Weights(weights) if weights.is_file() else None
        self._idle = self._new_idle()
        _loaded.add(self)

    def __call__(self, *inputs: Any) -> Any:
        """The network's output for its inputs, in its order; a list where there are several."""
        outputs = self.run(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Iterable[Any]) -> list[Any]:
        """All outputs of the network as a list. Raises InputError for inputs it does not take."""
        given = inputs if isinstance(inputs, list | tuple) else _as_sequence(self.name, inputs)
        outputs = with_pool(self._outputs, self._index(given), given)
        if given and _is_torch(given[0]):
            import torch

            tensors = [torch.utils.dlpack.from_dlpack(output) for output in outputs]
            return tensors if given[0].is_cuda else [tensor.cpu() for tensor in tensors]
        if given and not hasattr(given[0], "__array__") and self._gpu is not None:
            return outputs  # of the GPU, as the inputs
        return [array_of(output) for output in outputs]

    def _outputs(self, index: int, inputs: Sequence[Any]) -> list[Any]:
        # The pool of threads belongs to the thread that calls.
        set_threads(self.threads)
        idle, library, weights = self._idle, self._library, self._weights
        if library is None:
            raise self._closed()
        machine = idle.get()
        try:
            machine = machine or ModuleMachine(library, weights, self.signatures, self._gpu)
            return machine.run(index, inputs)
        finally:
            idle.put(machine)

    def close(self) -> None:
        """Give back its memory, and its files. It cannot be called any more."""
        if self._library is None:
            return
        release_segments(self._segments)
        self._library = self._weights = None
        self._idle = SimpleQueue()

    def __enter__(self) -> TunedModule:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"{self.name} is code in memory, which cannot be copied",
            cure=f"load it where it is wanted: tunefleet.load({str(self.path)!r})",
        )

    def _closed(self) -> InputError:
        return InputError(f"{self.name} was closed", cure="load it again")

    def _new_idle(self) -> SimpleQueue[ModuleMachine | None]:
        """A place for each call that may run at once."""
        idle: SimpleQueue[ModuleMachine | None] = SimpleQueue()
        several = 1 if self._gpu is not None else len(cpu_info().granted) // self.threads
        for _ in range(max(1, several)):
            idle.put(None)  # made when it is first needed
        return idle

    def forked(self) -> None:
        """What threads held at a fork nobody gives back."""
        if self._library is not None:
            self._idle = self._new_idle()

    def __repr__(self) -> str:
        takes = "; ".join(", ".join(map(str, s.inputs)) for s in self.signatures)
        return f"<tunefleet.TunedModule {self.name}({takes}), {self.threads} threads>"

    def _index(self, inputs: Sequence[Any]) -> int:
        """The place of the inputs' shapes among `signatures`."""
        if self._library is None:
            raise self._closed()
        try:
            index = self._entries.get(tuple((x.shape, _type_name(x.dtype)) for x in inputs))
        except (AttributeError, TypeError, RuntimeError):  # of arrays that have no one shape
            index = None
        if index is None:
            raise _refused(self.name, self.signatures, inputs)
        return index


def _forked() -> None:
    for module in list(_loaded):
        module.forked()


#: Those of this process.
_loaded: WeakSet[TunedModule] = WeakSet()
os.register_at_fork(after_in_child=_forked)


def _checked(threads: int) -> int:
    """TVM ends the process where it cannot have so many. Raises InputError."""
    most = max(_LEAST_OF_MOST, 4 * (os.cpu_count() or 1))
    try:
        number = count("threads", threads)
        if number > most:
            raise ValueError(f"{number} threads are more than {most}")
    except ValueError as error:
        cure = f"this machine has {os.cpu_count()} cores"
        raise InputError(str(error), cure=cure) from error
    return number


def _as_sequence(name: str, inputs: Any) -> Sequence[Any]:
    """Inputs of a call, in the network's order. Raises InputError."""
    if isinstance(inputs, Mapping) or hasattr(inputs, "shape") or not isinstance(inputs, Iterable):
        raise InputError(
            f"{name} was given {type(inputs).__name__}, not a list of inputs",
            cure="give a list of arrays, in the order of its signature",
        )
    return tuple(inputs)


def _types_of(signature: Signature) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((spec.shape, spec.dtype) for spec in signature.inputs)


@lru_cache
def _type_name(dtype: Any) -> str:
    """The name of an array's type: NumPy's, where PyTorch has a prefix before it."""
    return str(dtype).rpartition(".")[2]


def _is_torch(given: Any) -> bool:
    return type(given).__module__.partition(".")[0] == "torch"


def _refused(name: str, signatures: Sequence[Signature], inputs: Sequence[Any]) -> InputError:
    takes = [", ".join(map(str, signature.inputs)) for signature in signatures]
    cure = f"give {takes[0]}" if len(takes) == 1 else f"give one of: {'; '.join(takes)}"
    wanted = signatures[0].inputs
    if len(inputs) != len(wanted):
        return InputError(f"{name} takes {len(wanted)} inputs, {len(inputs)} were given", cure=cure)
    strangers = [i for i, each in enumerate(inputs) if not hasattr(each, "__dlpack__")]
    if strangers:
        kind = type(inputs[strangers[0]]).__name__
        return InputError(f"input {wanted[strangers[0]].name} is a {kind}, not an array", cure=cure)
    try:
        given = [(tuple(each.shape), _type_name(each.dtype)) for each in inputs]
    except (AttributeError, TypeError, RuntimeError):  # a class, or a tensor of several shapes
        return InputError(f"{name} was given what has no shape of numbers", cure=cure)
    wrong = next((i for i, s in enumerate(wanted) if given[i] != (s.shape, s.dtype)), 0)
    shape, dtype = given[wrong]
    got = f"{dtype}[{', '.join(map(str, shape))}]"
    return InputError(f"input {wanted[wrong].name} is {got}", cure=cure)


def check_runs_here(artifact: Artifact, gpu: int = 0) -> None:
    """Raises InputError when an artifact's code cannot run on this machine, or on the GPU of this
    number where it is for one; SetupError when not in this installation."""
    if isinstance(artifact.target, CudaTarget):
        there = gpu_device(f"{CUDA}:{gpu}").description.gpu
        assert there is not None
        check_runs_on(artifact.target, there)
    if artifact.toolchain.tvm != installed_versions()["apache-tvm"]:
        raise SetupError(
            f"{artifact.path} was compiled by TVM {artifact.toolchain.tvm}, "
            f"{installed_versions()['apache-tvm'] or 'none'} is installed",
            cure=f"pip install apache-tvm=={artifact.toolchain.tvm}, or tune again",
        )
    machine = os.uname().machine
    missing = [i for i in artifact.instructions if i not in {*cpu_info().facts.flags, machine}]
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{artifact.path} uses {shown}, which this processor does not have",
            cure="tune on a machine of this kind",
        )
    if TILES in artifact.instructions and not takes_tiles():
        raise SetupError(
            f"{artifact.path} may use AMX, and the kernel does not give this process its registers",
            cure="load it before libraries whose threads have small signal stacks",
        )
