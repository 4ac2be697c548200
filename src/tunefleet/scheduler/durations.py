"""Sources of simulated stage durations: means, distributions around them, or recorded rounds.

Each is a value that maps a stage key to seconds, independent of earlier calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

from tunefleet.core.stage import STAGE_ORDER, StageKey, StageKind, WorkKind
from tunefleet.errors import InputError

SCHEMA = "tunefleet-durations/1"
_CURE = f"give a file of schema {SCHEMA}"

#: (job id, task id)
LaneName = tuple[str, str]
#: Seconds of the four stages of one round, in order.
Round = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Means:
    """The same number of seconds for all stages of a kind."""

    seconds: Mapping[WorkKind, float]

    def __call__(self, key: StageKey) -> float:
        return self.seconds[key.kind]


#: Means of the thesis (section 3.4.1); its 44.0 s of update and selection are split in half.
THESIS = Means(
    MappingProxyType({
        StageKind.SELECT: 22.0,
        StageKind.BUILD: 8.3,
        StageKind.PROFILE: 39.5,
        StageKind.UPDATE: 22.0,
    })
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """Lognormal durations around means, with variation between lanes and between stages.

    `lane_cv` is the coefficient of variation of the lanes' means (drawn independently for select,
    build, profile and update), `stage_cv` that of the stages around the mean of their lane.
    """

    means: Mapping[WorkKind, float]
    lane_cv: float = 0.0
    stage_cv: float = 0.0
    seed: int = 0

    def __call__(self, key: StageKey) -> float:
        lane = (self.seed, key.job_id, key.task_id, key.kind)
        factor = _lognormal(self.lane_cv, *lane) * _lognormal(self.stage_cv, *lane, key.iteration)
        return self.means[key.kind] * factor


def _lognormal(cv: float, *name: object) -> float:
    """A draw with mean 1 and this coefficient of variation, deterministic by name."""
    if cv == 0:
        return 1.0
    digest = blake2b(repr(name).encode(), digest_size=8).digest()
    # 52 bits plus one half: never 0 or 1 as a float.
    normal = NormalDist().inv_cdf(((int.from_bytes(digest, "big") >> 12) + 0.5) / 2**52)
    variance = math.log1p(cv * cv)
    return math.exp(math.sqrt(variance) * normal - variance / 2)


@dataclass(frozen=True, slots=True)
class Replay:
    """Recorded rounds by lane in execution order; a longer lane repeats them."""

    lanes: Mapping[LaneName, tuple[Round, ...]]

    def __post_init__(self) -> None:
        if not self.lanes or not all(self.lanes.values()):
            raise ValueError("a replay needs at least one lane, and each lane at least one round")

    def __call__(self, key: StageKey) -> float:
        rounds = self.lanes[key.job_id, key.task_id]
        return rounds[key.iteration % len(rounds)][STAGE_ORDER.index(key.kind)]

    def dealt_to(self, names: Iterable[LaneName]) -> Replay:
        """Assign the recorded lanes to other lanes in round-robin order."""
        recorded = list(self.lanes.values())
        return Replay({name: recorded[i % len(recorded)] for i, name in enumerate(names)})

    def to_json(self) -> dict[str, Any]:
        lanes = [
            {"job": job, "task": task, "rounds": [_round_to_json(r) for r in rounds]}
            for (job, task), rounds in self.lanes.items()
        ]
        return {"schema": SCHEMA, "lanes": lanes}

    @classmethod
    def from_json(cls, value: object, source: str) -> Replay:
        """`source` is the name of the file, for the InputError about its content."""
        document = _object(value, source)
        if document.get("schema") != SCHEMA:
            raise InputError(f"{source} has schema {document.get('schema')!r}", cure=_CURE)
        lanes: dict[LaneName, tuple[Round, ...]] = {}
        for index, item in enumerate(_array(document.get("lanes"), f"{source}: lanes")):
            where = f"{source}: lane {index}"
            lane = _object(item, where)
            name = _text(lane, "job", where), _text(lane, "task", where)
            if name in lanes:
                raise InputError(f"{where} repeats task {name[1]} of job {name[0]}", cure=_CURE)
            rounds = _array(lane.get("rounds"), f"{where}: rounds")
            lanes[name] = tuple(
                _round(r, f"{where}, round {number}") for number, r in enumerate(rounds)
            )
        return cls(lanes)


def _round_to_json(seconds: Round) -> dict[str, float]:
    return {str(kind): s for kind, s in zip(STAGE_ORDER, seconds, strict=True)}


def _round(value: object, where: str) -> Round:
    given = _object(value, where)
    select, build, profile, update = (_seconds(given.get(k), f"{where}: {k}") for k in STAGE_ORDER)
    return select, build, profile, update


def _seconds(value: object, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise InputError(f"{where} is {value!r}, not a number of seconds", cure=_CURE)
    return float(value)  # type: ignore[arg-type]


def _text(lane: Mapping[str, Any], name: str, where: str) -> str:
    if not isinstance(lane.get(name), str):
        raise InputError(f"{where} has no {name}", cure=_CURE)
    return str(lane[name])


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} is not an object", cure=_CURE)
    return value


def _array(value: object, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{where} is not a list, or is empty", cure=_CURE)
    return value
