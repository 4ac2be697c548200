"""Requests of users as specifications of jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tunefleet.artifacts.artifact import Artifact
from tunefleet.artifacts.opening import open_artifact
from tunefleet.core.budget import NO_SEARCH
from tunefleet.core.importing import ImportOptions, InputFile, NetworkSource
from tunefleet.core.job import Building, JobSpec
from tunefleet.core.precision import INT8
from tunefleet.core.settings import TuneSettings
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.errands import calling_spec, evaluation_spec, placing_spec
from tunefleet.runs.placement import check_division
from tunefleet.runs.request import (
    SearchRequest,
    job_spec,
    search_request,
    shape_request,
    source_of,
)
from tunefleet.runs.uploads import ARRAY_SUFFIXES, check_import
from tunefleet.service.admission import CheckedImports
from tunefleet.service.problems import Refused, not_found
from tunefleet.service.values import AskedJob
from tunefleet.store import KeptNetwork, Store, User

_ZOO = "zoo:"


class AskedJobs:
    """Turns requests into jobs. Each method raises Refused for objects of other users, as for
    those that do not exist, and errors of the tree. Thread-safe."""

    def __init__(self, home: Path, store: Store) -> None:
        self._home = home
        self._store = store

    def context(self, user: User, asked: AskedJob) -> BenchmarkContext:
        """Where the job runs; of several places the first."""
        if asked.kind == "place" and asked.devices:
            return next(iter(self._places(user, asked).values()))
        return BenchmarkContext(
            asked.target,
            device=(asked.device,) if asked.device else (),
            threads=asked.threads,
            home=self._home,
            tenant=user.name,
        )

    def check(self, user: User, asked: AskedJob) -> Callable[[], NetworkSource] | None:
        """The work on a network that needs a sandbox before its job: its import, unless it was
        imported with these options before, and quantising. None where there is none."""
        if self.is_known(asked):
            return None
        options, place = self._options(user, asked), None
        checked = CheckedImports(self._home, user.name)
        if not asked.network.startswith(_ZOO) and not checked.has(asked.network, options):
            place = self._home / self._kept(user, asked.network).place
        if place is None and asked.precision != INT8:
            return None

        def call() -> NetworkSource:
            context = self.context(user, asked)
            if place is not None:
                check_import(place, context, options)
                checked.keep(asked.network, options)
            return self.source(user, asked, context)

        return call

    def is_known(self, asked: AskedJob) -> bool:
        """Whether a job reads no uploaded file; decided without the store."""
        is_zoo = asked.network.startswith(_ZOO) and asked.precision != INT8
        return not asked.network or asked.artifact is not None or (is_zoo and not asked.inputs)

    def spec(
        self,
        user: User,
        asked: AskedJob,
        context: BenchmarkContext,
        folder: Path | None,
        from_job: str,
        source: NetworkSource | None,
    ) -> JobSpec:
        """The specification. `folder` is that of an artifact, `from_job` a job; `source` is the
        network, if it was imported already."""
        if folder is not None:
            return self._of_artifact(user, asked, open_artifact(folder))
        if asked.kind == "place":
            contexts = self._places(user, asked)
            check_division(contexts)
            first = next(iter(contexts.values()))
            return placing_spec(source or self.source(user, asked, first), contexts)
        if asked.kind == "build":
            building = Building(from_job, asked.measure)
            request = SearchRequest(NO_SEARCH, TuneSettings(), building=building)
        else:
            request = search_request(
                asked.budget.trials,
                trials_per_task=asked.budget.trials_per_task,
                minutes=asked.budget.minutes,
                device_minutes=asked.budget.device_minutes,
                target_latency_ms=asked.agreement.latency_ms,
                speedup=asked.agreement.speedup,
                most_lost=asked.agreement.most_lost,
                transfer_learning=asked.transfer_learning,
            )
        if asked.deadline is not None and asked.deadline <= time.time():
            raise Refused(422, "the deadline is past", cure="give seconds since 1970, UTC")
        terms = replace(request.terms, priority=asked.priority, deadline=asked.deadline)
        found = source or self.source(user, asked, context)
        return job_spec(context, found, replace(request, terms=terms), self._store)

    def _of_artifact(self, user: User, asked: AskedJob, artifact: Artifact) -> JobSpec:
        if asked.kind == "evaluate":
            return evaluation_spec(artifact, asked.rounds, user.name)
        files = [self._arrays(user, digest) for digest in asked.inputs]
        inputs = [(file.place, file.digest) for file in files]
        return calling_spec(artifact, inputs, asked.repeat, user.name)

    def _places(self, user: User, asked: AskedJob) -> dict[str, BenchmarkContext]:
        return {
            name: BenchmarkContext(
                target or "cpu",
                device=name,
                threads=asked.threads,
                home=self._home,
                tenant=user.name,
            )
            for name, target in asked.devices.items()
        }

    def source(self, user: User, asked: AskedJob, context: BenchmarkContext) -> NetworkSource:
        """The network of a job."""
        spec, calibrate = asked.network, None
        if not spec.startswith(_ZOO):
            spec = str(self._home / self._kept(user, spec).place)
        if asked.calibrate is not None:
            calibrate = self._home / self._arrays(user, asked.calibrate).place
        options = self._options(user, asked)
        return source_of(spec, options, context, asked.precision, calibrate)

    def _options(self, user: User, asked: AskedJob) -> ImportOptions:
        shapes = shape_request(asked.shapes, asked.dims, asked.constants)
        files = [self._arrays(user, digest) for digest in asked.inputs]
        inputs = [InputFile(str(self._home / file.place), file.digest) for file in files]
        whole = asked.whole or asked.kind == "place"
        return ImportOptions(shapes, whole, inputs=tuple(inputs))

    def _arrays(self, user: User, digest: str) -> KeptNetwork:
        file = self._kept(user, digest)
        if is_network(self._home, file):
            raise Refused(422, f"{file.name} is a network", cure="send arrays: a .npz file")
        return file

    def _kept(self, user: User, digest: str) -> KeptNetwork:
        network = self._store.holdings.network(user.name, digest)
        if network is None:
            raise not_found(f"network {digest[:12]}")
        return network


def is_network(home: Path, kept: KeptNetwork) -> bool:
    """Whether an uploaded file is a network rather than arrays."""
    if Path(kept.name).suffix.lower() != ".zip":
        return Path(kept.name).suffix.lower() not in ARRAY_SUFFIXES
    place = home / kept.place
    return not place.is_dir() or any(f.suffix not in ARRAY_SUFFIXES for f in place.iterdir())
