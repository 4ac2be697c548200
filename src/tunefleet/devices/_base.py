"""The seam between what decides about programs and what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from tunefleet.core.device import DeviceDescription
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.target import Target
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Failure, Measurement, Timer
from tunefleet.errors import DeviceError

Array = NDArray[Any]
NO_WEIGHTS = TaskWeights()


@dataclass(slots=True)
class Transfers:
    """What went to a device since it was opened: bytes of programs and inputs, and the seconds that
    this took. It is never part of a latency."""

    count: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Check:
    """How a candidate's output compares with the default schedule's on random input.

    `difference` is "" when they agree; `default_s` is the fastest of a few runs of the default, in
    seconds.
    """

    difference: str
    default_s: float


class ClockError(DeviceError):
    """The clock of a device runs backwards, stands, or says what is no time: no program is to
    blame. One that was set meanwhile does so once."""


class Program(Protocol):
    """A built library on a device, ready to run."""

    def run(self, arrays: Sequence[Array]) -> tuple[Array, float]:
        """The last argument after a run on these arrays, and the seconds of the fastest of a few
        runs (one where it is long)."""
        ...


class Network(Protocol):
    """A compiled network on a device, at one of the shapes that it takes.

    *Errors*: RuntimeError with what the network did, where it failed; RetryElsewhereError where the
    device went away.
    """

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of one inference."""
        ...

    def timer(self, inputs: Sequence[Array]) -> Timer:
        """A timer of inferences on inputs that are in place."""
        ...

    def kernel_times(self, inputs: Sequence[Array], repeats: int) -> dict[str, float]:
        """Seconds per inference spent in each kernel, by its name; empty where nobody tells."""
        ...


class Device(Protocol):
    """One thing that runs programs: this machine's processor, one behind a server.

    *Where*: opened by `open_device` inside a worker process, from a `DeviceSpec` that travels; the
    device itself never does. The pool around the worker is what ends a call that takes too long.

    *Threads*: used by one thread at a time.

    *Ownership*: a device owns what it opens (a session, a server's attention) until `close`.
    Libraries belong to who built them; they are read during the call and may go after it.

    *Idempotence*: `reset` and `close` may be repeated. A closed device opens what it needs again
    when it is asked for anything. Measuring leaves nothing behind that another call sees.

    *Errors*: what a program does is data: `Failure` of a `FailureKind`. What the device does is
    raised: RetryElsewhereError where it does not answer (the work is fine), DeviceError where it
    answers and cannot be trusted or used, SetupError where this machine lacks what it takes. A
    local program that crashes takes the worker with it, which the pool tells; a remote one is told
    by its device.
    """

    transfers: Transfers

    def describe(self) -> DeviceDescription:
        """The identity, the architecture and the cores that programs may use."""
        ...

    def load(self, built: Built, limit_s: float) -> Program:
        """A program of a library; each of its calls may take so long. Errors are raised as they
        come: DeviceError and its kind, or what the library's own fault raises."""
        ...

    def network(self, path: str, entry: str) -> Network:
        """A module with its weights beside it, at the shape that `entry` names."""
        ...

    def measure(
        self,
        built: Built,
        settings: MeasureSettings,
        best_s: float | None,
        weights: TaskWeights = NO_WEIGHTS,
    ) -> Measurement | Failure:
        """Measure one candidate: warm-up, then short repeats, with `weights` as cold as in the
        network. `best_s` is the best latency of the task so far; a candidate far behind it is cut
        short."""
        ...

    def measure_interleaved(
        self,
        candidates: Sequence[Built],
        settings: MeasureSettings,
        weights: TaskWeights = NO_WEIGHTS,
    ) -> list[Measurement | Failure]:
        """Measure finalists in turn, A B C A B C ..., so that a slow minute hits all alike."""
        ...

    def verify(self, default: Built, candidate: Built, seed: int) -> Check:
        """Run both on the same random input, the candidate in whatever form it is. The tolerance
        follows from float32 sums in another order: relative to the largest output."""
        ...

    def reference(self, target: Target, directory: str) -> float:
        """Seconds of the reference kernel now; the first call compiles it into `directory`."""
        ...

    def peak(self, target: Target, directory: str) -> float:
        """float32 GFLOP/s that the target's threads reach at best, measured."""
        ...

    def reset(self) -> None:
        """Forget every program and session: the next call starts from a fresh one."""
        ...

    def close(self) -> None:
        """Let go of what is open, so that others may have it."""
        ...


class Runs(Protocol):
    """Runs one program over and over."""

    def __call__(self, *, number: int, repeat: int, preprocess: str) -> list[float]:
        """Seconds per run of each of `repeat` repeats of `number` runs. `preprocess` is a function
        of TVM's runtime that is called before each, or ""."""
        ...
