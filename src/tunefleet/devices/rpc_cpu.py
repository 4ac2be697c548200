"""How programs are run on the processor of a server of TVM's RPC: the probe there times them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tunefleet.artifacts.tensors import numpy_type
from tunefleet.compiler.code.packing import arguments_of
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built
from tunefleet.devices._base import Array
from tunefleet.devices.local import CHECK_RUNS, LONG_RUN_S
from tunefleet.devices.rpc_session import RpcSession
from tunefleet.devices.runners import copies_of, placed

_NO_ROTATION_BYTES = 8


class RemoteRuns:
    """Runs a program of a session, with copies of its weights in turn where they would be cold."""

    def __init__(
        self,
        session: RpcSession,
        built: Built,
        weights: TaskWeights,
        limit_s: float,
        arguments: Sequence[Any],
    ) -> None:
        self._session = session
        self._limit_s = limit_s
        self._module, self._address = session.load(built.path)
        copies = copies_of(built, weights)
        cold = weights.arguments if copies else ()

        def made() -> tuple[Any, list[Any]]:
            # Also a weight has a tensor of its own: one small memory more, and one way for all.
            own = [] if arguments else [session.random(*types) for types in built.args]
            return _rotation(session, built, cold, copies), own

        # Weights that another program has just read would not be cold.
        key = None if copies or arguments else tuple(built.args)
        self._rotation, own = session.kept(key, made)
        self._arguments = list(arguments) or own

    def __call__(self, *, number: int, repeat: int, preprocess: str) -> list[float]:
        if preprocess:
            evaluator = self._module.time_evaluator(
                "main", self._session.device, number, repeat, f_preproc=preprocess
            )
            results = self._session.watched(lambda: evaluator(*self._arguments), self._limit_s)
            return [float(s) for s in results.results]
        return self._session.time(
            self._address, number, repeat, self._limit_s, self._rotation, self._arguments
        )


def _rotation(session: RpcSession, built: Built, weights: Sequence[int], copies: int) -> Any:
    """Memory with the copies of the weights, a region for each type; where those of the first copy
    begin, -1 for other arguments; the step from copy to copy; how many there are."""
    begins, step = placed(built, weights)
    types = sorted({built.args[i][1] for i in begins})
    memory = session.empty((max(len(types) * copies * step, _NO_ROTATION_BYTES),), "uint8")
    for place, dtype in enumerate(types):
        session.fill(memory, dtype, place * copies * step, copies * step)
    starts = [
        begins[i] + types.index(dtype) * copies * step if i in begins else -1
        for i, (_, dtype) in enumerate(built.args)
    ]
    return memory, session.send(np.array(starts, np.int64)), step, copies


class RemoteProgram:
    """A program on a server's processor, to be compared with another."""

    def __init__(self, session: RpcSession, built: Built, limit_s: float) -> None:
        self._session = session
        self._limit_s = limit_s
        self._built = built
        self._module, self._address = session.load(built.path)
        self._rotation = _rotation(session, built, (), 0)

    def run(self, arrays: Sequence[Array]) -> tuple[Array, float]:
        arguments = list(map(self._session.send, arguments_of(self._built, arrays)))
        fastest = self._fastest(arguments, 1)
        if fastest <= LONG_RUN_S:
            fastest = min(fastest, self._fastest(arguments, CHECK_RUNS - 1))
        shape, dtype = self._built.args[-1]
        output = self._session.fetch(arguments[-1], nbytes(shape, dtype))
        return np.asarray(output).astype(numpy_type(dtype), copy=False), fastest

    def _fastest(self, arguments: Sequence[Any], repeat: int) -> float:
        return min(
            self._session.time(self._address, 1, repeat, self._limit_s, self._rotation, arguments)
        )
