"""Session: import, autotune, build, save, evaluate, as one chain (SimpleTVM, thesis 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tunefleet.core.events import Observer
from tunefleet.core.home import Home, default_home
from tunefleet.core.importing import ImportOptions
from tunefleet.core.notebook import html_table
from tunefleet.core.precision import FLOAT32
from tunefleet.core.result import RunResult
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import PREPARATION, StepKind
from tunefleet.errors import StepOrderError
from tunefleet.runs.context import BenchmarkContext, context_of, fleet_of
from tunefleet.runs.driver import Pipeline
from tunefleet.runs.given_inputs import GivenInputs, input_files
from tunefleet.runs.request import (
    check_policy,
    check_rounds,
    search_request,
    shape_request,
    source_of,
)
from tunefleet.runs.watching import default_observer

if TYPE_CHECKING:
    from torch.nn import Module

    from tunefleet.artifacts.artifact import Artifact
    from tunefleet.artifacts.module import TunedModule
    from tunefleet.fleet.local import LocalFleet


class Session:
    """One network on its way through the steps; each returns the session, so they chain.

    `from_network` -> `autotune` (optional) -> `build` -> `evaluate` (optional) -> `save` -> `run`.
    `evaluate` may also come after `save`; its figures are then added to the artifact. A step called
    too early raises StepOrderError naming the one that is missing. Worker processes start with the
    first step and end with `close`, with the `with` block, or with the process.

    `context` says for which target, on which device and in which home; this machine and
    `~/.tunefleet` without one. `observer` is called with each event (`tunefleet.core.events`), from
    any thread. Without one a notebook shows the progress as text, and a script shows nothing.
    """

    def __init__(
        self, context: BenchmarkContext | None = None, observer: Observer | None = None
    ) -> None:
        self.context = context_of(context)
        self._given_observer = observer
        self._name = ""
        self._fleet: LocalFleet | None = None
        self._pipeline: Pipeline | None = None
        self._built = self._saved = False
        self._artifact: Artifact | None = None
        self._module: TunedModule | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and release the store. The session can still tell its result."""
        with ExitStack() as closing:  # each is closed whatever becomes of the others
            for held in (self._module, self._fleet, self._pipeline):
                if held is not None:
                    closing.callback(held.close)
            try:
                if self._pipeline is not None and self.context.result is None and self._prepared:
                    self.context.result = self._pipeline.run.result()
            finally:
                self._pipeline = self._fleet = self._module = None

    # The steps

    def from_network(
        self,
        network: str | Path | Module,
        *,
        example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        dynamic: Mapping[str, Mapping[int, Any]] | None = None,
        shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
        dims: Mapping[str, int | Sequence[int]] | None = None,
        constants: Mapping[str, float | Sequence[float]] | None = None,
        whole: bool = False,
        trust: bool = False,
        precision: str = FLOAT32,
        calibrate: str | Path | None = None,
        inputs: GivenInputs | None = None,
    ) -> Self:
        """Import a network, check it against its source framework, split it into tasks.

        `network` is a path (.onnx, .pt2, .tflite, .keras, a SavedModel or Hugging Face folder), a
        name of the zoo (`zoo:resnet50?batch=4`), or a torch module in eval mode. A module is
        exported with its `example_inputs`, a tuple of tensors, or a dictionary of them by name;
        `dynamic` names its free axes, such as {"x": {0: "batch"}}. Its file is kept below home, in
        a place named by its content.

        `shapes` fixes shapes of inputs by name, `dims` free dimensions by name; several values of
        a dimension make one module for all of them. `constants` are inputs that always have these
        values: the network is tuned without them. `whole`: refuse a network of which a part
        would stay in its source framework. `trust`: run code that its file may hold, where reading
        it needs that (docs/security.md). `precision` is float32 for a network as it is, fp16 or
        bf16 for products of such numbers, or int8 for an ONNX file or a network of the zoo that is
        quantised first, with the inputs that `calibrate` names: a .npz or .npy file, or a folder of
        them.

        The network is checked and measured with `inputs`: a .npz file, or a dictionary of arrays,
        by the names of its inputs; a list of them where it has several shapes. Without them it is
        checked with those that its file has, or with drawn ones.

        A session may go on to another network, whose run is another one: `context.run_id` is that
        of the last.

        Raises InputError for what is no network, for one that cannot be imported, and where a
        dimension stays free; JobError where the imported network computes something else than its
        source framework; SetupError where a package or memory is missing.
        """
        from tunefleet.compiler.frontends.torch_module import file_of

        folder = partial(self.context.created, Home(self.context.home).modules)
        file = file_of(network, example_inputs, dynamic, folder)
        options = ImportOptions(
            shape_request(shapes, dims, constants), whole, trust, inputs=input_files(inputs, folder)
        )
        if self._pipeline is not None:
            self._pipeline.close()
        if self._pipeline is not None or self.context.result is not None:
            self.context.renew()  # what it committed is of its run
        self._pipeline = None
        self._forget_built()
        source = source_of(file, options, self.context, precision, calibrate)
        self._name = source.name
        observer = self._given_observer or default_observer(source.name)
        self._pipeline = Pipeline(self._place(), self.context, source, observer)
        self._run(PREPARATION[-1])
        return self

    def autotune(
        self,
        trials: int | None = None,
        *,
        minutes: float | None = None,
        target_latency_ms: float | None = None,
        trials_per_task: int | None = None,
        device_minutes: float | None = None,
        speedup: float | None = None,
        most_lost: float | None = None,
        profile_timeout_s: float | None = None,
        batch_size: int | None = None,
        transfer_learning: bool | None = None,
        settings: TuneSettings | None = None,
        new_job: bool = False,
        policy: str = "predictive",
        look_ahead: bool | None = None,
        allow_interference: bool = False,
    ) -> Self:
        """Search until the budget ends, then choose and verify each task's winner.

        The budget is `trials` (of all tasks together), `trials_per_task`, `minutes` of tuning and
        `device_minutes` of measuring candidates: whichever is reached first ends the search.
        Without any it is 1,000 trials.

        Agreed may be `target_latency_ms` of an inference, a `speedup` over the source framework,
        which is measured before the search, and `most_lost`: how far outputs may differ, as
        `RunResult.difference` says. The search ends before its budget once the network has it:
        where it is estimated to, it is compiled and measured, and searched further where it has
        not. `RunResult.agreement` is what became of it.

        `profile_timeout_s` is the most seconds that one candidate may run, `batch_size` how many
        are measured in a round of a task, `transfer_learning=False` leaves out the records of other
        tasks; where given they go before `settings`, which has every other parameter.

        A job of the same network, target, device, budget and settings that was interrupted is
        continued; `new_job` starts afresh. `policy` (sequential, synchronous, interleaved,
        predictive) and `look_ahead` decide which stages run side by side where this machine builds
        and measures on different cores. `allow_interference` is for experiments, as in `tune`:
        candidates may be measured beside those of other such sessions and commands. Called again,
        it searches anew what is asked otherwise, and `build` comes after it again.

        Raises StepOrderError before `from_network`, InputError for a wrong value, JobError where
        the job was cancelled or could not go on.
        """
        pipeline = self._need("autotune", "from_network", self._prepared)
        check_policy(policy)
        asked = search_request(
            trials,
            minutes=minutes,
            target_latency_ms=target_latency_ms,
            trials_per_task=trials_per_task,
            device_minutes=device_minutes,
            speedup=speedup,
            most_lost=most_lost,
            profile_timeout_s=profile_timeout_s,
            batch_size=batch_size,
            transfer_learning=transfer_learning,
            settings=settings,
            new_job=new_job,
            look_ahead=look_ahead,
            allow_interference=allow_interference,
        )
        if pipeline.run.job is not None:
            self._forget_built()
        pipeline.open_job(asked)
        self._run(StepKind.SELECT_WINNERS, policy=policy)
        return self

    def build(self) -> Self:
        """Compile with the best verified records; keep the plain module if that is faster.

        Without `autotune` before, the records are those that earlier jobs verified on this
        device. Raises StepOrderError before `from_network`, JobError where compiling fails.
        """
        self._need("build", "from_network", self._prepared)
        self._run(StepKind.VERIFY)
        self._built = True
        return self

    def save(self) -> Self:
        """Publish the artifact directory `home/artifacts/RUN_ID`.

        Raises StepOrderError before `build`, SetupError where it cannot be written."""
        self._need("save", "build", self._built)
        self._run(StepKind.PUBLISH)
        self._saved = True
        return self

    def evaluate(self, rounds: int | None = None) -> Self:
        """Measure a baseline and what is delivered end to end, in turn; adds to a saved artifact's
        report. The baseline is the source framework, on another machine the plain schedules.

        `rounds` is how many times each is measured, 12 unless `settings` say otherwise. Raises
        StepOrderError before `build`, InputError for a wrong number. After `load`, what is missing
        in the artifact's report is added, and a source that is not there any more is named in the
        result's warnings."""
        if self._pipeline is None and self._artifact is not None:
            from tunefleet.runs.errands import evaluated_again

            observer = self._given_observer or default_observer(self._artifact.network.name)
            self.context.result = evaluated_again(
                self._artifact, self.result(), self.context.home, rounds, observer
            )
            return self
        pipeline = self._need("evaluate", "build", self._built)
        if rounds is not None:
            check_rounds(rounds)
        unsaved = frozenset[StepKind]() if self._saved else frozenset({StepKind.PUBLISH})
        again = frozenset({StepKind.MEASURE})
        self._run(StepKind.MEASURE, without=unsaved, again=again, rounds=rounds)
        self.context.result = pipeline.run.told()
        pipeline.finish(self.context.result.to_dict())
        return self

    def run(self, *inputs: Any) -> Any:
        """Run the delivered module, as `tunefleet.load` gives it; it stays loaded until `close`.

        `inputs` are arrays in the order of the network's, as `TunedModule` takes them. Raises
        StepOrderError before `save`, InputError for inputs that the network does not take."""
        if self._artifact is None:
            self._need("run", "build", self._built)
            if not self._saved:
                cure = "call save() or Session.load(run_id)"
                raise StepOrderError("run needs save first", cure=cure)
            from tunefleet.artifacts.opening import open_artifact

            self._artifact = open_artifact(self.context.run_id, self.context.home)
        if self._module is None:
            from tunefleet.artifacts.module import TunedModule

            self._module = TunedModule(self._artifact)
        return self._module(*inputs)

    @classmethod
    def load(
        cls, run_id: str | Path, home: Path | str | None = None, observer: Observer | None = None
    ) -> Session:
        """A session on a saved artifact, by its directory or the beginning of its run's id: it can
        `run` and `evaluate`; `context` and `result` are those of its run. Raises InputError."""
        from tunefleet.artifacts.opening import open_artifact

        artifact = open_artifact(run_id, home)
        at_home = Path(home) if home is not None else default_home()
        session = cls(BenchmarkContext.of_artifact(artifact, at_home), observer)
        session._artifact = artifact
        return session

    # What it knows

    @property
    def module_path(self) -> Path:
        """The shared library that is delivered."""
        return self._need("module_path", "build", self._built).run.module()

    @property
    def peak_gflops(self) -> float | None:
        """float32 GFLOP/s that the target's threads reach at best, measured by `from_network`."""
        return self._need("peak_gflops", "from_network", self._prepared).run.checked.peak_gflops

    def result(self) -> RunResult:
        """Everything that its run has brought by now; `to_dict()` of it is what `--json` writes.
        What a later evaluation fills in of its artifact, `load` finds there."""
        if self._pipeline is not None and self._prepared:
            return self._pipeline.run.result()
        if self.context.result is None:
            self._need("result", "from_network", False)
        assert self.context.result is not None
        return self.context.result

    @property
    def state(self) -> str:
        """How far it is: new, imported, tuned, built, saved, loaded, or closed."""
        if self._pipeline is None:
            return "loaded" if self._artifact else "closed" if self._name else "new"
        steps = {
            "saved": self._saved,
            "built": self._built,
            "tuned": self._pipeline.run.job is not None,
        }
        done = next((step for step, is_done in steps.items() if is_done), "imported")
        return done if self._prepared else "new"

    def __repr__(self) -> str:
        return f"<tunefleet.Session {', '.join(' '.join(row) for row in self._facts())}>"

    def _repr_html_(self) -> str:
        """For notebooks: what it is, how far, and what came of it."""
        result = self.context.result._repr_html_() if self.context.result is not None else ""
        return html_table(self._facts()) + result

    def _facts(self) -> list[tuple[str, str]]:
        name = self._artifact.network.name if self._artifact and not self._name else self._name
        facts = [(name, self.state)] if name else [("state", self.state)]
        return [*facts, ("target", self.context.target_text), ("run", self.context.run_id[:8])]

    # How it does it

    def _forget_built(self) -> None:
        """What is delivered next is another module."""
        if self._module is not None:
            self._module.close()
        self._built = self._saved = False
        self.context.result = self._artifact = self._module = None

    @property
    def _prepared(self) -> bool:
        return self._pipeline is not None and self._pipeline.run.is_prepared

    def _need(self, step: str, missing: str, done: bool) -> Pipeline:
        if not done or self._pipeline is None:
            raise StepOrderError(f"{step} needs {missing} first", cure=f"call {missing}() before")
        return self._pipeline

    def _run(
        self,
        upto: StepKind,
        *,
        policy: str = "predictive",
        without: frozenset[StepKind] = frozenset(),
        again: frozenset[StepKind] = frozenset(),
        rounds: int | None = None,
    ) -> None:
        """Go on to a step; raises what ended it before."""
        pipeline = self._pipeline
        assert pipeline is not None
        lives = pipeline.advance(upto, without=without, again=again, rounds=rounds)
        if lives:
            self._place().shell(policy).run(lives)
        if pipeline.error is not None:
            raise pipeline.error

    def _place(self) -> LocalFleet:
        if self._fleet is None:
            self._fleet = fleet_of(self.context)
        return self._fleet
