"""A processor behind TVM's RPC: any machine on which `python -m tvm.exec.rpc_server` runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from tunefleet.artifacts.network import POOLED
from tunefleet.artifacts.tensors import CPU, GPU
from tunefleet.artifacts.weights import read_weights, weights_path
from tunefleet.compiler.code.build import is_memory, one_line
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.device import DeviceDescription, RpcAddress
from tunefleet.core.gpu import Gpu
from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.target import Target
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind, Timer
from tunefleet.devices import reference_cuda
from tunefleet.devices._base import Array, Network, Program, Runs
from tunefleet.devices.measuring import MeasuringDevice, clocked
from tunefleet.devices.rpc_cpu import RemoteProgram, RemoteRuns
from tunefleet.devices.rpc_gpu import RemoteGpuProgram, RemoteGpuRuns, remote_gpu
from tunefleet.devices.rpc_line import NoAnswerError
from tunefleet.devices.rpc_session import RpcSession
from tunefleet.errors import (
    DeviceError,
    ForeignError,
    RetryElsewhereError,
    TunefleetError,
    raise_mistake,
)
from tunefleet.hardware.cores import slower_cores
from tunefleet.hardware.processor import identity_of, machine_facts, usable_cores

tvm = load_tvm()

#: For which a server that is gone, or that another session has, is waited for.
PATIENCE_S = 30.0
#: What one call of a network may take.
NETWORK_LIMIT_S = 300.0

T = TypeVar("T")


class RpcDevice(MeasuringDevice):
    """Programs are uploaded and run in a session of the server. A session that a program ends is
    followed by a fresh one, and the program's failure is told; a server that another session has is
    waited for for `patience_s`, one that takes no connection for `away_s`, at growing intervals.

    Latencies are taken there, by the same repeats as on this machine; nothing that travels is in
    them. The server must be Linux; nothing of this package need be on it.
    """

    def __init__(
        self,
        address: RpcAddress,
        threads: int,
        *,
        name: str = "",
        patience_s: float = PATIENCE_S,
        away_s: float = PATIENCE_S,
        identity: DeviceIdentity | None = None,
        gpu: int | None = None,
    ) -> None:
        """`name` is the user's, for a machine that does not tell its own; `identity` what every
        server has to be that answers, anything without. `gpu` is the number of the server's GPU
        that runs programs, None for its processor."""
        super().__init__()
        self._gpu = gpu
        self._identity = identity
        self._address = address
        self._threads = threads
        self._name = name or (identity.name if identity and gpu is None else "")
        self._patience_s, self._away_s = patience_s, away_s
        self._session: RpcSession | None = None
        self._known_gpu: Gpu | None = None

    def describe(self) -> DeviceDescription:
        try:
            return self._described(self._open())
        except NoAnswerError:
            raise self._silent() from None

    def _described(self, session: RpcSession) -> DeviceDescription:
        machine = session.kernel_machine() or session.machine
        facts = machine_facts(session.read, machine, session.hwcaps())
        usable = usable_cores(session.read) or tuple(range(max(facts.cores, 1)))
        slower = slower_cores(session.read)
        cores = tuple(core for core in usable if core not in slower) or usable
        if self._name and not facts.name:
            facts = replace(facts, name=self._name, cores=facts.cores or len(cores))
        try:
            identity = identity_of(facts, machine)
        except ValueError as error:
            raise DeviceError(
                f"{self._address.url} does not say what it is: {error}", cure="name it: --name NAME"
            ) from error
        host = DeviceDescription(identity, machine, cores)
        return host if self._gpu is None else remote_gpu(session, self._gpu, host)

    def load(self, built: Built, limit_s: float) -> Program:
        if self._gpu is not None:
            return RemoteGpuProgram(self._open(), built, limit_s)
        return RemoteProgram(self._open(), built, limit_s)

    def network(self, path: str, entry: str) -> Network:
        return _RemoteNetwork(self, path, entry)

    def of_network(self, call: Callable[[RpcSession], T]) -> T:
        """What a call gives that loads or runs a network in the session."""
        try:
            return call(self._open())
        except TunefleetError:
            raise
        except Exception as error:
            raise_mistake(error)
            failure = self._blame(error)
            if failure is None:
                raise self._silent() from error
            raise ForeignError(failure.text) from error

    def reset(self) -> None:
        super().reset()
        if self._session is not None:
            self._session.close()
            self._session = None

    def _open(self, after: RpcSession | None = None) -> RpcSession:
        """The session; a new one rather on the server of the session that it comes `after`."""
        if self._session is None:
            try:
                session = RpcSession(
                    self._address,
                    self._threads,
                    self._patience_s,
                    self._away_s,
                    self.transfers,
                    after,
                    self._gpu,
                )
                self._check(session)
            except (TunefleetError, NoAnswerError):
                raise
            except Exception as error:
                raise_mistake(error)
                raise RetryElsewhereError(
                    f"{self._address.url} answers what no server of TVM's RPC does: "
                    f"{one_line(error)}",
                    cure="see what listens there, or start the server again",
                ) from error
            self._session = session
        return self._session

    def _check(self, session: RpcSession) -> None:
        """Another machine may answer than was named: a tracker lends whichever is free."""
        if self._identity is None:
            return
        try:
            found = self._described(session).identity
        except NoAnswerError:
            raise self._silent() from None
        if found != self._identity:
            session.close()
            raise RetryElsewhereError(
                f"{self._address.url} is another device than was named: {found}, not "
                f"{self._identity}",
                cure="name it again, and give servers that are not alike keys of their own",
            )

    def _runs(
        self, built: Built, weights: TaskWeights, limit_s: float, arguments: Sequence[Any] = ()
    ) -> Runs:
        gpu = self._described_gpu()
        if gpu is not None:
            return RemoteGpuRuns(self._open(), built, weights, limit_s, arguments, gpu)
        return RemoteRuns(self._open(), built, weights, limit_s, arguments)

    def _reference(self, target: Target, directory: str) -> Built:
        gpu = self._described_gpu()
        if gpu is None:
            return super()._reference(target, directory)
        return reference_cuda.reference_kernel(target, gpu, directory)

    def _peaks(self, target: Target, directory: str) -> Iterable[tuple[float, Built]]:
        gpu = self._described_gpu()
        if gpu is None:
            return super()._peaks(target, directory)
        return reference_cuda.peak_kernels(target, gpu, directory)

    def _in_turn(self, candidates: Sequence[Built]) -> list[Any]:
        """The first arguments of all in one piece of memory, and so on, each in its own shape."""
        session = self._open()
        largest: dict[tuple[int, str], int] = {}
        for built in candidates:
            for index, (shape, dtype) in enumerate(built.args):
                key = (index, dtype)
                largest[key] = max(largest.get(key, 0), math.prod(shape))
        pieces = {key: session.random((size,), key[1]) for key, size in largest.items()}
        return [
            [
                pieces[index, dtype]._create_view(shape, dtype)
                for index, (shape, dtype) in enumerate(built.args)
            ]
            for built in candidates
        ]

    def _blame(self, error: Exception) -> Failure | None:
        """The server tells why a session ended, to the next one."""
        session = self._session
        if session is None:
            return None
        try:
            if not isinstance(error, NoAnswerError) and session.lives():
                if not self._gpu_works(session):
                    return Failure(FailureKind.RUN_CRASH, one_line(error))
                kind = FailureKind.RUN_MEMORY if is_memory(error) else FailureKind.RUN_ERROR
                return Failure(kind, one_line(error))
        except NoAnswerError as silence:
            error = silence
        reason_path = session.reason_path
        self._session = None
        self._reference_runs.clear()
        if isinstance(error, NoAnswerError):
            # Its thread may wait for ever; what it holds goes with this process.
            raise self._silent() from error
        session.close()
        try:
            reason = self._open(after=session).reason(reason_path)
        except NoAnswerError:
            self._session = None
            raise self._silent() from error
        if reason is None or not reason[1]:
            return None
        if reason[0] == "SIGALRM":
            return Failure(FailureKind.RUN_TIMEOUT, "stopped on the device after its time limit")
        return Failure(FailureKind.RUN_CRASH, f"session died: {reason[0]}")

    def _described_gpu(self) -> Gpu | None:
        """The server's GPU, which is asked once; None for a processor."""
        if self._gpu is not None and self._known_gpu is None:
            self._known_gpu = self.describe().gpu
        return self._known_gpu

    def _gpu_works(self, session: RpcSession) -> bool:
        """Whether the context of the server's GPU lives; with a dead one the session ends."""
        if self._gpu is None:
            return True
        try:
            session.wait()
        except NoAnswerError:
            raise
        except Exception as error:
            raise_mistake(error)
            self.reset()
            return False
        return True

    def _silent(self) -> RetryElsewhereError:
        return RetryElsewhereError(
            f"{self._address.url} stopped answering in the middle of a session",
            cure="look after the board and its network, or start its server again",
        )


class _RemoteNetwork:
    """A module in the virtual machine of TVM's runtime there, its weights sent once. On a line of
    a millisecond, what is asked twice costs more than a small network: inputs go to where those
    before them were, and outputs are counted once."""

    def __init__(self, device: RpcDevice, path: str, entry: str) -> None:
        self._device = device
        self._entry = entry
        self._machine, self._weights = device.of_network(lambda session: self._load(session, path))
        self._inputs: dict[Any, Any] = {}
        self._outputs: int | None = None

    def _load(self, session: RpcSession, path: str) -> Any:
        module, _ = session.load(path, entry=False)
        machine = session.watched(module["vm_load_executable"], NETWORK_LIMIT_S)
        gpu = () if session.gpu is None else (GPU, session.gpu, POOLED)
        session.call(machine["vm_initialization"], *gpu, CPU, 0, POOLED)
        weights = read_weights(weights_path(path), self._entry)
        return machine, [session.send(weight.numpy()) for weight in weights]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        def fetched(session: RpcSession) -> list[Array]:
            self._set(session, inputs)
            machine, entry = self._machine, self._entry
            session.watched(lambda: machine["invoke_stateful"](entry), NETWORK_LIMIT_S)
            if self._outputs is None:
                self._outputs = int(session.call(machine["get_output_arity"], entry))
            # One tensor has no arity.
            places = [()] if self._outputs < 0 else [(i,) for i in range(self._outputs)]
            tensors = [session.call(machine["get_output"], entry, *place) for place in places]
            return [np.asarray(_fetched(session, tensor)) for tensor in tensors]

        return self._device.of_network(fetched)

    def timer(self, inputs: Sequence[Array]) -> Timer:
        self._device.of_network(lambda session: self._set(session, inputs))

        def times(repeats: int) -> list[float]:
            def timed(session: RpcSession) -> list[float]:
                evaluator = self._machine.time_evaluator(
                    "invoke_stateful", session.device, number=1, repeat=repeats
                )
                results = session.watched(lambda: evaluator(self._entry), NETWORK_LIMIT_S)
                return clocked([float(s) for s in results.results])

            return self._device.of_network(timed)

        return times

    def kernel_times(self, inputs: Sequence[Array], repeats: int) -> dict[str, float]:
        # What would time them is called for each kernel, which over a network takes longer than it.
        return {}

    def _set(self, session: RpcSession, inputs: Sequence[Array]) -> None:
        """The machine copies what it is given: the tensors are free again."""
        keys = [(place, array.shape, str(array.dtype)) for place, array in enumerate(inputs)]
        for key, array in zip(keys, inputs, strict=True):
            if key in self._inputs:
                session.put(array, self._inputs[key])
            else:
                self._inputs[key] = session.send(array)
        arguments = [*(self._inputs[key] for key in keys), *self._weights]
        session.call(self._machine["set_input"], self._entry, *arguments)


def _fetched(session: RpcSession, tensor: Any) -> Any:
    return session.fetch(tensor, nbytes(tuple(tensor.shape), str(tensor.dtype)))
