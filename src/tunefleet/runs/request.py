"""What a user asks: a network, a budget and settings, and the job that they make."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.agreement import NOTHING_AGREED, Agreed
from tunefleet.core.budget import Budget
from tunefleet.core.home import Home
from tunefleet.core.ids import digest
from tunefleet.core.importing import ImportOptions, NetworkSource
from tunefleet.core.job import (
    Building,
    Collecting,
    Job,
    JobKind,
    JobSpec,
    JobState,
    JobTerms,
    PlacedOn,
)
from tunefleet.core.network import NetworkInfo
from tunefleet.core.numbers import count, duration, number, positive, whole
from tunefleet.core.precision import FLOAT32, FLOATS, INT8
from tunefleet.core.settings import TuneSettings
from tunefleet.core.shapes import ShapeRequest
from tunefleet.core.step import Preparation
from tunefleet.errors import InputError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.pretrained import steered
from tunefleet.scheduler.names import POLICY_NAMES

if TYPE_CHECKING:
    from tunefleet.store import Store

_DEFAULT_TRIALS = 1000
#: Of a priority: each halves the time that a task may take.
_HIGHEST_PRIORITY = 100


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """`new_job`: start afresh even where a job like this was interrupted. `shared`: candidates are
    measured beside those of other jobs on purpose."""

    budget: Budget
    settings: TuneSettings
    new_job: bool = False
    terms: JobTerms = field(default_factory=JobTerms)
    agreed: Agreed = NOTHING_AGREED
    collecting: Collecting | None = None
    building: Building | None = None
    divided: tuple[PlacedOn, ...] = ()
    shared: bool = False


def search_request(
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
    look_ahead: bool | None = None,
    allow_interference: bool = False,
) -> SearchRequest:
    """`trials` counts all tasks of a network together; 1,000 where no budget is given.
    `device_minutes` counts what its profile stages take; `speedup` and `most_lost` are what is
    agreed beside a target latency (`core.agreement`).

    `profile_timeout_s`, `batch_size` and `transfer_learning` are the parameters of the thesis's
    section 3.2; where given they go before `settings`.
    """
    if trials is None and minutes is None and trials_per_task is None and device_minutes is None:
        trials = _DEFAULT_TRIALS
    try:
        budget = Budget(
            trials=trials,
            seconds=None if minutes is None else duration("minutes", minutes) * 60,
            target_latency_s=(
                None
                if target_latency_ms is None
                else positive("target_latency_ms", target_latency_ms) / 1e3
            ),
            trials_per_task=trials_per_task,
            device_seconds=(
                None if device_minutes is None else duration("device_minutes", device_minutes) * 60
            ),
        )
        agreed = Agreed(speedup=speedup, most_lost=most_lost)
        chosen = TuneSettings() if settings is None else settings
        if not isinstance(chosen, TuneSettings):
            raise ValueError(f"settings are {type(chosen).__name__}, not TuneSettings")
        if profile_timeout_s is not None:
            wait = duration("profile_timeout_s", profile_timeout_s)
            chosen = replace(chosen, measure=replace(chosen.measure, timeout_s=wait))
        if batch_size is not None:
            size = count("batch_size", batch_size)
            chosen = replace(chosen, search=replace(chosen.search, batch=size))
        if transfer_learning is not None:
            chosen = replace(chosen, transfer=transfer_learning)
    except ValueError as error:
        raise InputError(str(error), cure="such as trials=1000, minutes=15") from error
    terms = JobTerms(look_ahead=look_ahead)
    return SearchRequest(budget, chosen, new_job, terms, agreed, shared=allow_interference)


def check_policy(policy: str) -> None:
    """Raises InputError for a policy that does not exist."""
    if policy not in POLICY_NAMES:
        names = ", ".join(POLICY_NAMES)
        raise InputError(f"{policy!r} is not a policy", cure=f"choose one of {names}")


def check_rounds(rounds: int) -> None:
    """Raises InputError for what is no number of rounds of a measurement."""
    try:
        count("rounds", rounds)
    except ValueError as error:
        raise InputError(str(error), cure="such as rounds=12") from error


def terms_of(
    names: Sequence[str],
    priorities: Mapping[str, int] | None,
    deadlines_s: Mapping[str, float] | None,
    look_ahead: bool | None = None,
) -> list[JobTerms]:
    """Those of each network, by its name; deadlines are in seconds from now. Raises InputError."""
    try:
        higher = {str(n): whole(f"the priority of {n}", v) for n, v in (priorities or {}).items()}
        due = {str(n): duration(f"the deadline of {n}", v) for n, v in (deadlines_s or {}).items()}
        strangers = [name for name in (*higher, *due) if name not in names]
        if strangers:
            raise ValueError(f"{strangers[0]} is none of the networks")
        far = [name for name, value in higher.items() if abs(value) > _HIGHEST_PRIORITY]
        if far:
            raise ValueError(f"the priority of {far[0]} is beyond {_HIGHEST_PRIORITY}")
    except (ValueError, AttributeError) as error:
        cure = "such as priorities={'a.onnx': 1}, deadlines_s={'a.onnx': 3600}"
        raise InputError(str(error), cure=cure) from error
    at = time.time()
    return [
        JobTerms(
            priority=higher.get(name, 0),
            deadline=at + due[name] if name in due else None,
            look_ahead=look_ahead,
        )
        for name in names
    ]


def source_of(
    spec: str | Path,
    options: ImportOptions,
    context: BenchmarkContext,
    precision: str = FLOAT32,
    calibrate: str | Path | None = None,
) -> NetworkSource:
    """A network before its import, in a precision: in int8 it is an ONNX file below home, which is
    made first, in a process of its own. Raises InputError for a network that is not there or cannot
    be had so, SetupError where the quantiser is not installed."""
    from tunefleet.compiler.frontends.spec import (
        check_precision,
        in_floats,
        is_zoo,
        network_digest,
        network_files,
        network_name,
        wanted_precision,
    )

    text = str(spec)
    if "\0" in text:
        raise InputError(f"{text!r} is no path", cure="leave out its NUL characters")
    wanted = wanted_precision(text, precision)
    if calibrate is not None and wanted != INT8:
        raise InputError(
            f"there is nothing to calibrate in {wanted}", cure=f"write --precision {INT8}"
        )
    of_products = ""
    if wanted == INT8:
        text = _quantised(text, context, calibrate)
    elif wanted in FLOATS:
        check_precision(wanted, context.target)
        text, of_products = in_floats(text), f"-{wanted}"
        options = replace(options, precision=wanted)
    name = network_name(text) + of_products
    given = []
    for file in options.inputs:
        path = Path(file.path)
        kept = _kept(file.path, {path.name: (path, file.content)}, context)
        given.append(replace(file, path=kept))
    options = replace(options, inputs=tuple(given))
    if is_zoo(text):
        return NetworkSource(text, name, network_digest(text), options, context.tenant)
    content, files = network_files(text)
    return NetworkSource(_kept(text, files, context), name, content, options, context.tenant)


def _kept(path: str, files: Mapping[str, tuple[Path, str]], context: BenchmarkContext) -> str:
    """Where something is read from now on, whatever becomes of it, as a path below home: a copy,
    which consists of `files`. What was made below home is one."""
    from tunefleet.artifacts.blobs import keep, open_blobs

    home = Home(context.home)
    own = home.relative(str(Path(path).resolve()))
    if home.absolute(own) != own:
        return own
    name = keep(open_blobs(home.networks), files)
    return str(Path(home.networks.name, name, Path(next(iter(files))).parts[0]))


def _quantised(text: str, context: BenchmarkContext, calibrate: str | Path | None) -> str:
    from tunefleet.compiler.frontends.spec import in_floats, network_places
    from tunefleet.compiler.quantize import drafted, quantized_file
    from tunefleet.system.sandbox import Sandbox
    from tunefleet.workers.apart import call_apart

    data = None if calibrate is None else Path(calibrate).resolve()
    # By what is there already, no user of a service learns what others have.
    own = digest(context.tenant, 8) if context.tenant else ""
    folder = context.created(Home(context.home).quantized / own)
    plain = in_floats(text)
    reads = (*network_places(plain), folder, *([] if data is None else [data]))

    def apart(spec: str, data: Path | None, folder: Path, draft: Path) -> str:
        # It keeps the outputs of all layers for each sample: the network's size says nothing of it.
        sandbox = Sandbox(reads, (draft,))
        what = f"quantising {spec}"
        return call_apart(what, drafted, spec, data, folder, draft, sandbox=sandbox)

    return str(quantized_file(plain, data, folder, apart))


def job_spec(
    context: BenchmarkContext,
    source: NetworkSource,
    request: SearchRequest,
    store: Store | None = None,
) -> JobSpec:
    """A job of a network on the target of a context, measured by its devices; `store` is that of
    its home, if it is open.

    A collection or a build is another job than tuning the same network, whatever its settings.
    Raises InputError for a cost model that is not in the registry, and where another device than
    this machine's processor is to be shared.
    """
    from tunefleet.system.user import user_name

    if request.shared and context.devices:
        raise InputError(
            f"jobs cannot share {context.place}: one at a time measures there",
            cure="leave out --device, or --allow-interference",
        )
    content, settings, kind = source.identity, request.settings, JobKind.TUNE
    collecting, building = request.collecting, request.building
    if collecting is not None:
        parts = [source.content, request.budget.trials, *["tensorised"] * collecting.tensorised]
        content, kind = digest(["collection", *parts]), JobKind.COLLECT
    if building is not None:
        content = digest(["build", content, building.from_job, building.measure])
        kind = JobKind.BUILD
    elif request.divided:
        content = digest(["place", content, *map(str, request.divided)])
        kind = JobKind.PLACE
    else:
        settings = replace(settings, search=steered(settings.search, context, store))
    terms = replace(
        request.terms,
        owner=context.tenant or user_name(),
        devices=context.device_names,
        device_kind=context.device_kind,
    )
    of = preparation_of(context, source)
    return JobSpec(
        network=NetworkInfo(source.name, source.spec, content, (), ()),
        target=of.target,
        device=of.device,
        toolchain=of.toolchain,
        budget=request.budget,
        settings=settings,
        source=source,
        kind=kind,
        terms=terms,
        collecting=collecting,
        agreed=request.agreed,
        building=building,
        divided=request.divided,
        shared=request.shared,
        tenant=context.tenant,
    )


def preparation_of(context: BenchmarkContext, source: NetworkSource) -> Preparation:
    """What its import and check are found by, on the target and the device of a context."""
    from tunefleet.compiler.toolchain.host import toolchain_of

    return Preparation(source, context.target, context.device, toolchain_of(context.target))


def enter_job(store: Store, spec: JobSpec, context: BenchmarkContext, *, new: bool) -> Job:
    """The running job of a request, or a new one with the id of the run; where it is to be a `new`
    one in any case, it takes the place of that. Raises StoreBusyError where another process works
    on the job that would be replaced."""
    if new:
        from tunefleet.fleet.leases import check_free
        from tunefleet.store import each_job

        check_free(store.coordination, spec.fingerprint)
        for old in each_job(store.jobs, state=JobState.RUNNING, fingerprint=spec.fingerprint):
            store.jobs.finish(old.job_id, JobState.FAILED, {"stopped": "replaced by a new job"})
    return store.jobs.open(spec, job_id=context.run_id, now=context.created_at)


def shape_request(
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, float | Sequence[float]] | None = None,
) -> ShapeRequest:
    """What is asked of free dimensions: a shape or several by input, a value or several by
    dimension; and the values of inputs that are always the same. Raises InputError."""
    try:
        return ShapeRequest.of(
            [(name, s) for name, given in (shapes or {}).items() for s in _shapes(name, given)],
            [(n, [whole(n, v) for v in _several(n, given)]) for n, given in (dims or {}).items()],
            [
                (n, [number(n, v) for v in _several(n, given)])
                for n, given in (constants or {}).items()
            ],
        )
    except (ValueError, AttributeError) as error:
        cure = "such as shapes={'x': [1, 3, 224, 224]}, dims={'width': [160, 320]}"
        raise InputError(str(error), cure=cure) from error


def _shapes(name: str, given: Any) -> list[tuple[int, ...]]:
    extents = list(_several(name, given))
    if not any(isinstance(extent, Iterable) for extent in extents):
        extents = [extents]
    return [tuple(whole(name, extent) for extent in _several(name, shape)) for shape in extents]


def _several(name: str, given: Any) -> Iterable[Any]:
    """What may be given alone, or as several: an array without axes is one, as in NumPy."""
    if isinstance(given, str | bytes):
        raise ValueError(f"{name} is {given!r}, not a number")
    try:
        return list(given)
    except TypeError:
        return [given]
