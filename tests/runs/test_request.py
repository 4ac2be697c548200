"""What a user asks of a search, as values."""

from __future__ import annotations

from typing import Any

import pytest

from tunefleet.core.budget import Budget
from tunefleet.core.settings import MeasureSettings, TuneSettings
from tunefleet.errors import InputError
from tunefleet.runs.request import search_request, shape_request


def test_a_search_without_a_budget_has_1000_trials() -> None:
    assert search_request().budget == Budget(trials=1000)
    assert search_request(minutes=2).budget == Budget(seconds=120.0)
    assert search_request(8, target_latency_ms=1.5).budget == Budget(8, target_latency_s=1.5e-3)


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
