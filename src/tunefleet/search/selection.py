"""The select stage: cost model + records so far -> a batch of candidates.

Programs are sampled, crossed and mutated as decisions (`decisions.py`), scored from these alone and
written as traces; TVM replays the traces when they are built. Stateless: the request and the task's
space are the only inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tunefleet.core.forms import WINOGRAD
from tunefleet.core.ids import digest
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import SelectResult
from tunefleet.core.target import Target
from tunefleet.core.trial import Candidate
from tunefleet.features import context, pack
from tunefleet.features.tilings import Encoded
from tunefleet.search.evolve import Effort, Ranked, evolve
from tunefleet.search.guide import Guide
from tunefleet.search.population import Population
from tunefleet.search.task_space import TaskSpace

#: Share of the population that starts from the best known programs.
_ELITE_SHARE = 0.25
#: The minimum number of measured programs per kind of a task's programs, and the share of a batch
#: for a kind with fewer. All kinds with register tiles of a designed size share the larger one:
#: cost models were trained without them.
_FORM_TRIALS = 8
_FORM_SHARE, _DESIGNED_SHARE = 0.25, 0.75
#: The number of programs written as traces at once.
_PART = 8


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """`known` are measured programs of the task as (candidate id, trace, latency in seconds),
    best first, from this job and from earlier ones; `tried` are ids that must not be selected.
    `elsewhere` are traces of this task on other devices, best first; `transfer_sources` are traces
    of similar tasks, the most similar first. Adapted to this task, both come before the programs
    found by the search, which starts from them. With a cost model they get half of a batch, by
    score: the search then finds equally good programs. `device` are the device features for the
    cost model (`features.context.device_numbers`).
    """

    program: str
    target: Target
    settings: SearchSettings
    batch: int
    seed: int
    known: tuple[tuple[str, str, float], ...] = ()
    tried: frozenset[str] = field(default_factory=frozenset)
    elsewhere: tuple[str, ...] = ()
    transfer_sources: tuple[str, ...] = ()
    operator: str = ""
    flops: float = 0.0
    device: tuple[float, ...] = context.device_numbers()


def select(request: SelectRequest, space: TaskSpace, guide: Guide | None) -> SelectResult:
    """At most `request.batch` new candidates of the task's space, the most promising first.

    Without a guide the batch is random. The result depends on the request and the guide alone.
    """
    return _Selection(request, space, guide).result()


class _Selection:
    def __init__(self, request: SelectRequest, space: TaskSpace, guide: Guide | None) -> None:
        self._request = request
        self._space = space
        self._guide = guide
        self._rng = np.random.default_rng(request.seed)
        task = context.TaskContext(space.shapes, request.flops, request.operator)
        self._numbers = context.numbers(task, request.device)

    def result(self) -> SelectResult:
        batch = tuple(islice(self._new(), self._request.batch))
        return SelectResult(batch, exhausted=not batch)

    def _new(self) -> Iterator[Candidate]:
        """Candidates, the most promising first, without duplicates and tried ones."""
        known = self._space.read(trace for _, trace, _ in self._request.known)
        seen = known
        for source in self._sources(known):
            new = source.take(source.not_in(seen)).distinct()
            seen = Population.concat([seen, new])
            # A few at a time: only the first of thousands of programs are needed.
            for numbers in np.split(np.arange(len(new)), range(_PART, len(new), _PART)):
                yield from self._candidates(new.take(numbers))

    def _sources(self, known: Population) -> Iterator[Population]:
        """Populations to try, the most promising first."""
        elsewhere = self._space.adapted(self._request.elsewhere)
        donated = self._space.adapted(self._request.transfer_sources).distinct()
        yield elsewhere
        if self._guide is None:
            yield donated
            yield self._space.decisions.sample(max(4 * self._request.batch, 64), self._rng)
        else:
            best = np.argsort(-self._score(donated), kind="stable")
            yield donated.take(best[: (self._request.batch + 1) // 2])
            yield from self._searched(known, Population.concat([elsewhere, donated]).distinct())

    def _searched(self, known: Population, donated: Population) -> list[Population]:
        """The best programs found and random ones, in the proportion of the settings."""
        settings = self._request.settings
        elites = known.take(np.arange(min(len(known), int(settings.population * _ELITE_SHARE))))
        effort = Effort(settings.population, settings.generations, settings.mutate_probability)
        evolved = evolve(
            self._space.decisions,
            Population.concat([elites, donated]),
            self._score,
            effort,
            self._rng,
        )
        # Small batches get a random program only sometimes.
        random_count = int(self._request.batch * settings.random_share + self._rng.random())
        fresh = self._space.decisions.sample(random_count, self._rng)
        new = evolved.population.not_in(known)
        ranked = Ranked(evolved.population.take(new), evolved.scores[new])
        unknown = self._of_unknown_forms(known, ranked.population)
        # In a batch of one or two the others may leave no room.
        left = max(0, self._request.batch - random_count - len(unknown))
        chosen = _spread(ranked.population, left)
        rest = np.setdiff1d(np.arange(len(ranked.population)), chosen)
        return [
            *(ranked.population.take(part) for part in (unknown, chosen)),
            fresh,
            ranked.population.take(rest),
        ]

    def _of_unknown_forms(self, known: Population, ranked: Population) -> NDArray[np.int64]:
        """The best programs of kinds with few measurements: scores compare programs of one kind,
        but hardly predict which kind is faster."""
        forms = self._space.decisions.forms
        if len(kinds := np.unique(forms)) == 1:
            return np.zeros(0, np.int64)
        measured = np.bincount(forms[known.sketch], minlength=forms.max() + 1)
        unknown = [int(kind) for kind in kinds[::-1] if measured[kind] < _FORM_TRIALS]
        designed = sum(kind > WINOGRAD for kind in unknown)
        found = [np.zeros(0, np.int64)]
        for kind in unknown:
            share = _DESIGNED_SHARE / designed if kind > WINOGRAD else _FORM_SHARE
            count = max(1, round(self._request.batch * share))
            found.append(np.flatnonzero(forms[ranked.sketch] == kind)[:count])
        return np.concatenate(found)

    def _score(self, population: Population) -> NDArray[np.float64]:
        return self._scored(list(self._space.encoded(population, self._numbers)), len(population))

    def _scored(
        self, lists: Sequence[tuple[NDArray[np.intp], Encoded]], count: int
    ) -> NDArray[np.float64]:
        """The scores of `count` programs, given as their numbers and features by sketch."""
        scores = np.zeros(count)
        if self._guide is not None and lists:
            found = self._guide.predict([encoded for _, encoded in lists])
            for (members, _), own in zip(lists, found, strict=True):
                scores[members] = own
        return scores

    def _candidates(self, programs: Population) -> Iterator[Candidate]:
        lists = list(self._space.encoded(programs, self._numbers))
        scores = self._scored(lists, len(programs))
        features = [b""] * len(programs)
        for members, encoded in lists:
            for member, rows in zip(members, encoded.rows(), strict=True):
                features[member] = pack(rows)
        traces = self._space.decisions.traces(programs)
        for trace, score, packed in zip(traces, scores, features, strict=True):
            candidate_id = digest(trace)
            if candidate_id not in self._request.tried:
                yield Candidate(candidate_id, trace, float(score), packed)


def _spread(ranked: Population, count: int) -> NDArray[np.int64]:
    """The best `count` programs that pairwise differ in more than one decision, while available:
    neighbours have similar latencies, so one measurement is enough for both."""
    chosen: list[int] = []
    passed: list[int] = []
    for number in range(len(ranked)):
        if len(chosen) == count:
            break
        others = np.array(chosen, np.int64)
        apart = (ranked.picks[others] != ranked.picks[number]).sum(axis=1)
        same_sketch = ranked.sketch[others] == ranked.sketch[number]
        if (same_sketch & (apart < 2)).any():
            passed.append(number)
        else:
            chosen.append(number)
    chosen += passed[: count - len(chosen)]
    return np.array(sorted(chosen), np.int64)
