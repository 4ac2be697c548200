"""The select stage: cost model + records so far -> a batch of candidates.

Stateless: everything comes in with the request. A worker keeps tune contexts, design spaces and
parsed records of the tasks it has seen; losing them costs time only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.host import to_tvm
from tunefleet.compiler.programs import load_program, program_id, replay, trace_text
from tunefleet.compiler.space import design_space, tune_context
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import SelectResult
from tunefleet.core.target import Target
from tunefleet.core.trial import Candidate
from tunefleet.features import pack
from tunefleet.features.per_store import extract

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule

Score = Callable[[Sequence[NDArray[np.float32]]], NDArray[np.float64]]

#: Share of the population that starts from the best known programs.
_ELITE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """`known` are measured programs of the task as (candidate id, trace, latency in seconds),
    best first, from this job and from earlier ones; `tried` are ids that must not come again;
    `proposals` are traces from other devices that come first where they fit this task.
    """

    program: str
    target: Target
    settings: SearchSettings
    batch: int
    seed: int
    known: tuple[tuple[str, str, float], ...] = ()
    tried: frozenset[str] = field(default_factory=frozenset)
    proposals: tuple[str, ...] = ()


def _context(
    program: str, target: Target, settings: SearchSettings, *, seed: int, threads: int
) -> Any:
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=settings.population,
        init_measured_ratio=_ELITE_SHARE,
        init_min_unmeasured=1,
        max_fail_count=3,
        genetic_num_iters=settings.generations,
        genetic_mutate_prob=settings.mutate_probability,
        genetic_max_fail_count=10,
        eps_greedy=settings.random_share,
    )
    return tune_context(program, target, strategy, seed=seed, threads=threads)


@lru_cache(maxsize=4096)
def _known_trace(program: str, trace: str) -> Any:
    return replay(program, trace).trace


class _Scorer:
    """Scores candidates for the search and remembers the features of what it has seen."""

    def __init__(self, score: Score | None, seed: int) -> None:
        self._score = score
        self._random = np.random.default_rng(seed)
        self._features: dict[str, NDArray[np.float32]] = {}

    def __call__(self, context: Any, candidates: Sequence[Any]) -> NDArray[np.float64]:
        if self._score is None:
            return self._random.random(len(candidates))
        return self._score(self.features(context, candidates))

    def features(self, context: Any, candidates: Sequence[Any]) -> list[NDArray[np.float32]]:
        """Extracted once per program: it takes 60 times as long as the program's digest."""
        ids = [program_id(candidate.sch) for candidate in candidates]
        new = {
            candidate_id: candidate
            for candidate_id, candidate in zip(ids, candidates, strict=True)
            if candidate_id not in self._features
        }
        self._features.update(zip(new, extract(context, list(new.values())), strict=True))
        return [self._features[candidate_id] for candidate_id in ids]


def _search_model(scorer: _Scorer) -> Any:
    """`scorer` as MetaSchedule's cost model."""

    @tvm.ir.utils.derived_object
    class Model(ms.cost_model.PyCostModel):  # type: ignore[name-defined]
        def load(self, path: str) -> None: ...

        def save(self, path: str) -> None: ...

        def update(self, context: Any, candidates: Any, results: Any) -> None: ...

        def predict(self, context: Any, candidates: Any) -> NDArray[np.float64]:
            return np.asarray(scorer(context, candidates), dtype="float64")

    return Model()


def select(request: SelectRequest, score: Score | None, threads: int = 1) -> SelectResult:
    """At most `request.batch` new candidates, the most promising first.

    `score` maps programs' features to scores (higher is faster); without it the batch is random.
    With one thread the result depends on the request alone; with more, TVM hands random states
    to whichever thread is free.
    """
    settings = request.settings
    if score is None:
        # Nothing guides an evolution yet: sample no more than is needed to find new programs.
        population = min(settings.population, 2 * request.batch)
        settings = replace(settings, population=population, generations=0)
    context = _context(
        request.program, request.target, settings, seed=request.seed, threads=threads
    )
    elites = request.known[: int(settings.population * _ELITE_SHARE)]
    database = _database(request, elites)
    scorer = _Scorer(score, request.seed)
    # The search does not know what earlier, stateless calls have measured: it puts some of that
    # into the batch again, so ask for more and drop it here.
    wanted = request.batch + len(elites) + request.batch // 4
    context.pre_tuning(
        max_trials=wanted,
        num_trials_per_iter=wanted,
        design_spaces=design_space(request.program, request.target),
        database=database,
        cost_model=_search_model(scorer),
    )
    found = context.generate_measure_candidates()
    context.post_tuning()
    fresh: dict[str, Any] = {}
    for candidate in [*_proposed(request), *(found or ())]:
        candidate_id = program_id(candidate.sch)
        if candidate_id not in request.tried and candidate_id not in fresh:
            fresh[candidate_id] = candidate
    chosen = _best_and_random(list(fresh), request.batch, settings.random_share)
    if not chosen:
        return SelectResult((), exhausted=True)
    features = scorer.features(context, [fresh[i] for i in chosen])
    scores = score(features) if score is not None else np.zeros(len(chosen))
    return SelectResult(
        tuple(
            Candidate(
                candidate_id=candidate_id,
                trace=trace_text(fresh[candidate_id].sch.trace),
                score=float(value),
                features=pack(rows),
            )
            for candidate_id, rows, value in zip(chosen, features, scores, strict=True)
        )
    )


def _proposed(request: SelectRequest) -> list[Any]:
    candidates = []
    for trace in request.proposals:
        try:
            schedule = replay(request.program, trace)
        except Exception:  # a trace of another device need not fit: the search goes on without
            continue
        info = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        candidates.append(ms.search_strategy.MeasureCandidate(schedule, info))
    return candidates


def _database(request: SelectRequest, elites: Sequence[tuple[str, str, float]]) -> Any:
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(load_program(request.program))
    tvm_target = to_tvm(request.target)
    for _, trace, latency_s in elites:
        database.commit_tuning_record(
            ms.database.TuningRecord(
                _known_trace(request.program, trace), workload, [latency_s], tvm_target, []
            )
        )
    return database


def _best_and_random(ids: list[str], batch: int, random_share: float) -> list[str]:
    """`ids` come best first with the search's random picks at the end: keep some of both."""
    if len(ids) <= batch:
        return ids
    random_count = int(batch * random_share)
    return ids[: batch - random_count] + (ids[-random_count:] if random_count else [])
