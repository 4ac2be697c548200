"""Every parameter of a job, typed, with its default. Read once, stored with the job."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tunefleet.core.numbers import count, duration, make_plain, positive

#: The cost model shipped with the package; its card lists the tasks it is used for.
SHIPPED_MODEL = "x86"
#: What a cost model that learns on may lose at most, of top-1 or top-5 on what it learned before.
MOST_FORGOTTEN = 0.03
#: New records from which one learns in the background: those of a search or two.
LEARN_EVERY = 1000

#: A larger relative change of a device's reference kernel means that a batch was disturbed.
MAX_DRIFT = 0.03

#: The kinds of cost model that learn from a job's own trials; `random` is the baseline.
COST_MODELS = ("xgb", "random")


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Effort of the select stage.

    `population` and `generations` set the number of scored programs. None of them is lowered, so
    each takes some 50 microseconds. `first_batch` is the size of a task's first round, `batch` of
    all later ones: small rounds cost a tenth of the trials per minute and find better programs with
    half as many (docs/benchmarks.md, search). `cost_model` learns from the job's own trials.
    `pretrained` is the id of a version in the registry of cost models ("" for none; a new job
    resolves the name of the shipped one to its id); it guides tasks of the kinds that it was
    trained on.
    """

    batch: int = 8
    first_batch: int = 4
    population: int = 512
    generations: int = 4
    mutate_probability: float = 0.85
    random_share: float = 0.1
    seed: int = 0
    cost_model: str = COST_MODELS[0]
    pretrained: str = SHIPPED_MODEL
    min_new_trials: int = 8

    def __post_init__(self) -> None:
        make_plain(self)
        _check_counts(self, "batch", "first_batch", "population")
        _check_counts(self, "generations", "min_new_trials", least=0)
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, which is negative")
        if not 0 <= self.random_share <= 1 or not 0 <= self.mutate_probability <= 1:
            raise ValueError("probabilities lie between 0 and 1")
        if self.cost_model not in COST_MODELS:
            names = " or ".join(COST_MODELS)
            raise ValueError(f"{self.cost_model!r} is not a cost model; choose {names}")


@dataclass(frozen=True, slots=True)
class BuildSettings:
    timeout_s: float = 20.0
    memory_gib: float = 8.0

    def __post_init__(self) -> None:
        make_plain(self)
        duration("timeout_s", self.timeout_s)
        _check_positive(self, "memory_gib")


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """How a candidate is measured.

    Repeats are short and many, and candidates are ranked by a low quantile of them. A candidate
    gets as many repeats as fit into `budget_s`. One slower than `give_up_ratio` times the best of
    its task gets only `slow_repeats`: its exact latency does not matter. A batch is measured again,
    at most `max_again` times, if the reference kernel changed by more than `max_drift` meanwhile.
    """

    timeout_s: float = 20.0
    memory_gib: float = 8.0
    repeats: int = 12
    slow_repeats: int = 2
    budget_s: float = 0.06
    min_repeat_ms: float = 1.0
    give_up_ratio: float = 3.0
    flush_cache: bool = False
    max_drift: float = MAX_DRIFT
    max_again: int = 1
    finalists: int = 6
    final_repeats: int = 60
    end_to_end_rounds: int = 12

    def __post_init__(self) -> None:
        make_plain(self)
        duration("timeout_s", self.timeout_s)
        _check_positive(self, "memory_gib", "budget_s", "min_repeat_ms", "give_up_ratio")
        _check_counts(self, "repeats", "slow_repeats", "finalists", "final_repeats")
        _check_counts(self, "end_to_end_rounds")
        _check_counts(self, "max_again", least=0)
        if self.max_drift < 0:
            raise ValueError(f"max_drift is {self.max_drift}, which is negative")


@dataclass(frozen=True, slots=True)
class TuneSettings:
    search: SearchSettings = field(default_factory=SearchSettings)
    build: BuildSettings = field(default_factory=BuildSettings)
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    transfer: bool = True

    def __post_init__(self) -> None:
        make_plain(self)
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} is not a {kind.__name__}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TuneSettings:
        return cls(
            search=SearchSettings(**value["search"]),
            build=BuildSettings(**value["build"]),
            measure=MeasureSettings(**value["measure"]),
            transfer=value["transfer"],
        )


_PARTS = {"search": SearchSettings, "build": BuildSettings, "measure": MeasureSettings}


def _check_counts(settings: Any, *names: str, least: int = 1) -> None:
    for name in names:
        count(name, getattr(settings, name), least)


def _check_positive(settings: Any, *names: str) -> None:
    for name in names:
        positive(name, getattr(settings, name))
