"""What a user asks of a search, as values."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.core.agreement import Agreed
from tunefleet.core.budget import Budget
from tunefleet.core.job import JobTerms
from tunefleet.core.settings import MeasureSettings, TuneSettings
from tunefleet.errors import InputError
from tunefleet.runs.request import search_request, shape_request, terms_of


def test_a_search_without_a_budget_has_1000_trials() -> None:
    assert search_request().budget == Budget(trials=1000)
    assert search_request(minutes=2).budget == Budget(seconds=120.0)
    assert search_request(trials_per_task=8).budget == Budget(trials_per_task=8)
    assert search_request(device_minutes=0.5).budget == Budget(device_seconds=30.0)
    assert search_request(8, target_latency_ms=1.5).budget == Budget(8, target_latency_s=1.5e-3)


def test_what_is_agreed_is_part_of_the_request() -> None:
    assert search_request(8, speedup=2, most_lost=0.01).agreed == Agreed(None, 2.0, 0.01)


def test_the_parameters_of_the_thesis_go_before_the_settings() -> None:
    given = TuneSettings(measure=MeasureSettings(timeout_s=9.0, repeats=3), transfer=True)
    asked = search_request(
        settings=given, profile_timeout_s=4.0, batch_size=5, transfer_learning=False, new_job=True
    )
    assert asked.new_job
    assert asked.settings.measure == MeasureSettings(timeout_s=4.0, repeats=3)
    assert asked.settings.search.batch == 5
    assert asked.settings.transfer is False
    assert search_request(settings=given).settings == given


def test_shapes_and_dimensions_are_one_or_several() -> None:
    one = shape_request({"x": [1, 3, 8, 8]}, {"width": 32}, {"sr": 16000})
    several = shape_request({"x": [[1, 3, 8, 8]]}, {"width": [32]}, {"sr": [16000]})
    assert one == several
    assert shape_request() == shape_request({}, {}, {})
    assert shape_request(dims={"width": (8, 12)}) != shape_request(dims={"width": 8})


@pytest.mark.parametrize(
    "given",
    [{"shapes": {"x": [-1]}}, {"dims": {"width": []}}, {"dims": {"width": -1}}],
)
def test_what_is_no_shape_is_refused_with_an_example(given: Any) -> None:
    with pytest.raises(InputError, match="such as shapes="):
        shape_request(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trials": 1e3}, "trials is 1000.0, not a whole number"),
        ({"trials": "4"}, "trials is '4', not a whole number"),
        ({"trials": 0}, "trials is 0, not a positive number"),
        ({"minutes": float("nan")}, "minutes is nan, not a finite number"),
        ({"trials_per_task": 0}, "trials_per_task is 0, not a positive number"),
        ({"device_minutes": 0}, "device_minutes is 0, not a positive number"),
        ({"speedup": 0}, "speedup is 0, not a positive number"),
        ({"most_lost": "much"}, "most_lost is 'much', not a number"),
        ({"minutes": "1"}, "minutes is '1', not a number"),
        ({"minutes": 1e300}, "more than a year"),
        ({"trials": 4, "target_latency_ms": 0}, "target_latency_ms is 0, not a positive number"),
        ({"trials": 4, "profile_timeout_s": -1}, "profile_timeout_s is -1"),
        ({"trials": 4, "batch_size": 1.5}, "batch_size is 1.5, not a whole number"),
        ({"trials": 4, "transfer_learning": "no"}, "transfer is 'no', not a bool"),
        ({"trials": 4, "settings": {}}, "settings are dict, not TuneSettings"),
    ],
)
def test_what_the_store_could_not_read_again_is_refused(given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        search_request(**given)


def test_numbers_of_numpy_are_taken() -> None:
    given: Any = {"trials": np.int64(8), "minutes": np.float32(2), "batch_size": np.int32(3)}
    asked = search_request(**given)
    assert asked == search_request(8, minutes=2, batch_size=3)
    assert type(asked.budget.trials) is int
    assert type(asked.budget.seconds) is float
    arrays: Any = {"x": np.array([1, 3])}, {"n": np.int64(4)}, {"sr": np.array(5)}
    assert shape_request(*arrays) == shape_request({"x": [1, 3]}, {"n": 4}, {"sr": 5})
    assert shape_request({"x": ()}).shapes == (("x", ((),)),)


@pytest.mark.parametrize(
    "given",
    [
        {"shapes": {"x": "1,3"}},
        {"shapes": {"x": 1.5}},
        {"shapes": [1, 3]},
        {"dims": {"n": "x"}},
        {"dims": {"n": None}},
        {"constants": {"n": "x"}},
        {"constants": {"n": float("inf")}},
    ],
)
def test_what_is_no_number_is_no_shape(given: Any) -> None:
    with pytest.raises(InputError, match="such as shapes="):
        shape_request(**given)


def test_priorities_and_deadlines_are_those_of_networks_that_are_given() -> None:
    names = ["a.onnx", "b.onnx"]
    assert terms_of(names, None, None) == [JobTerms(), JobTerms()]
    began = time.time()
    first, second = terms_of(names, {Path("b.onnx"): 1}, {"a.onnx": 60})  # type: ignore[dict-item]
    assert began + 60 <= (first.deadline or 0) <= time.time() + 60
    assert (first.priority, second) == (0, JobTerms(priority=1))
    with pytest.raises(InputError, match="c is none of the networks"):
        terms_of(names, {"c": 1}, None)
    for value in ("x", 1.5, 10**6):
        with pytest.raises(InputError, match=r"the priority of a\.onnx"):
            terms_of(names, {"a.onnx": value}, None)  # type: ignore[dict-item]
    with pytest.raises(InputError, match="such as priorities="):
        terms_of(names, [1], None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"the deadline of a\.onnx is nan"):
        terms_of(names, None, {"a.onnx": float("nan")})
