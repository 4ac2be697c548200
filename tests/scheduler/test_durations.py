"""Simulated durations: the same for the same stage, and recorded ones as they were."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.core.stage import STAGE_ORDER, StageKey, StageKind
from tunefleet.errors import InputError
from tunefleet.scheduler.durations import SCHEMA, THESIS, Replay, Spread


def key(task: str = "t", iteration: int = 0, kind: StageKind = StageKind.BUILD) -> StageKey:
    return StageKey("j", task, iteration, kind)


def some_keys(lanes: int = 400, rounds: int = 20) -> list[StageKey]:
    return [key(f"t{n}", i) for n, i in itertools.product(range(lanes), range(rounds))]


def test_the_thesis_means_make_a_round_of_91_8_seconds() -> None:
    assert sum(THESIS(key(kind=kind)) for kind in STAGE_ORDER) == pytest.approx(91.8)


def test_a_spread_does_not_depend_on_the_order_of_questions() -> None:
    keys = some_keys(5, 5)
    spread = Spread(THESIS.seconds, 0.5, 0.5, seed=3)
    forwards = {k: spread(k) for k in keys}
    again = Spread(THESIS.seconds, 0.5, 0.5, seed=3)
    assert forwards == {k: again(k) for k in reversed(keys)}


def test_another_seed_spreads_otherwise() -> None:
    draws = {Spread(THESIS.seconds, 0.5, 0.5, seed)(key()) for seed in range(10)}
    assert len(draws) == 10


def test_a_spread_keeps_the_mean_and_has_the_variation_asked_for() -> None:
    drawn = [Spread(THESIS.seconds, 0.0, 0.4)(k) for k in some_keys()]
    mean = sum(drawn) / len(drawn)
    deviation = math.sqrt(sum((d - mean) ** 2 for d in drawn) / len(drawn))
    assert mean == pytest.approx(8.3, rel=0.02)
    assert deviation / mean == pytest.approx(0.4, rel=0.05)


def test_stages_of_a_lane_share_its_mean() -> None:
    spread = Spread(THESIS.seconds, lane_cv=0.8, stage_cv=0.0)
    assert len({spread(key(iteration=i)) for i in range(5)}) == 1
    assert len({spread(key(f"t{n}")) for n in range(5)}) == 5


@given(seed=st.integers(), cv=st.floats(0, 3))
def test_durations_are_positive_and_finite(seed: int, cv: float) -> None:
    assert 0 < Spread(THESIS.seconds, cv, cv, seed)(key()) < math.inf


A, B = (1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0)
REPLAY = Replay({("j", "t"): (A, B), ("k", "u"): (B,)})


def test_a_replay_gives_rounds_in_order_and_begins_anew() -> None:
    found = [REPLAY(key(iteration=i, kind=StageKind.PROFILE)) for i in range(5)]
    assert found == [3.0, 7.0, 3.0, 7.0, 3.0]


def test_recorded_lanes_are_dealt_in_turn() -> None:
    dealt = REPLAY.dealt_to([("j", "a"), ("j", "b"), ("j", "c")])
    assert list(dealt.lanes.values()) == [(A, B), (B,), (A, B)]


seconds = st.floats(0, 1e6)
rounds = st.lists(st.tuples(seconds, seconds, seconds, seconds), min_size=1).map(tuple)


@given(st.dictionaries(st.tuples(st.text(), st.text()), rounds, min_size=1))
def test_a_replay_survives_json(lanes: Any) -> None:
    replay = Replay(lanes)
    assert replay == Replay.from_json(json.loads(json.dumps(replay.to_json())), "x.json")


def broken(**changes: Any) -> Any:
    return REPLAY.to_json() | changes


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ([], "not an object"),
        (broken(schema="tunefleet-durations/9"), "schema 'tunefleet-durations/9'"),
        (broken(lanes=[]), "lanes is not a list, or is empty"),
        (broken(lanes=[3]), "lane 0 is not an object"),
        (broken(lanes=[{"job": "j", "rounds": []}]), "lane 0 has no task"),
        (broken(lanes=[{"job": "j", "task": "t", "rounds": []}]), "lane 0: rounds is not a list"),
        (broken(lanes=[*broken()["lanes"]] * 2), "lane 2 repeats task t of job j"),
    ],
)
def test_a_wrong_file_is_named_with_cause_and_cure(value: Any, cause: str) -> None:
    with pytest.raises(InputError, match=r"x\.json") as caught:
        Replay.from_json(value, "x.json")
    assert cause in str(caught.value)
    assert SCHEMA in caught.value.cure


@pytest.mark.parametrize("bad", [None, "3", True, -1.0, math.nan, math.inf])
def test_what_is_no_number_of_seconds_is_refused(bad: Any) -> None:
    value = REPLAY.to_json()
    value["lanes"][0]["rounds"][1]["profile"] = bad
    with pytest.raises(InputError, match="lane 0, round 1: profile is"):
        Replay.from_json(value, "x.json")


def test_a_replay_without_rounds_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="each lane at least one round"):
        Replay({("j", "t"): ()})
