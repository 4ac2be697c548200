from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.costmodel import AttentionModel, XGBModel
from tunefleet.features.tilings import WIDTH, Encoded, flatten

pytestmark = pytest.mark.tvm

GENERATOR = np.random.default_rng(0)
TOKENS = GENERATOR.random((6, WIDTH), np.float32)
FIRST = GENERATOR.random((60, WIDTH), np.float32)
PROGRAMS = Encoded(TOKENS, FIRST, GENERATOR.integers(0, 6, (60, 3)))
ROWS = list(PROGRAMS.rows())
LABELS = FIRST[:, 30].astype(float)
TASKS = ["t"] * 60


@pytest.fixture
def given(tmp_path: Path) -> Any:
    from tunefleet.search.guide import Pretrained

    model = AttentionModel(hidden=8, heads=2, bins=4, epochs=2).fit(ROWS, LABELS, TASKS)
    (tmp_path / "member").write_bytes(model.save())
    return Pretrained("attention", str(tmp_path / "member"))


def test_without_models_there_is_no_guide() -> None:
    from tunefleet.search.guide import Guide

    assert Guide.load(None, "xgb", b"") is None


def test_a_pretrained_model_scores_alone(given: Any) -> None:
    from tunefleet.search.guide import Guide

    guide = Guide.load(given, "xgb", b"")
    assert guide is not None
    expected = given.load().predict(ROWS)
    np.testing.assert_allclose(expected, guide.predict([PROGRAMS])[0], rtol=1e-4)


def test_what_is_learnt_is_added_to_what_was_known(given: Any) -> None:
    from tunefleet.search.guide import Guide

    learnt = Guide.learn(given, "xgb", ROWS, LABELS, TASKS, {"t"})
    guide = Guide.load(given, "xgb", learnt)
    assert guide is not None
    known = given.load().predict(ROWS)
    residual = XGBModel.load(learnt).predict(flatten(ROWS))
    np.testing.assert_allclose(known + residual, guide.predict([PROGRAMS])[0], rtol=1e-4)
    before, after = (np.mean((s - LABELS) ** 2) for s in (known, guide.predict([PROGRAMS])[0]))
    assert after < before / 4


def test_a_task_that_is_not_steered_is_learnt_from_its_labels_alone(given: Any) -> None:
    from tunefleet.search.guide import Guide

    half = len(ROWS) // 2
    tasks = ["floats"] * half + ["bytes"] * half
    learnt = XGBModel.load(Guide.learn(given, "xgb", ROWS, LABELS, tasks, {"floats"}))
    offset = given.load().predict(ROWS)
    offset[half:] = 0
    expected = XGBModel().fit_residual(flatten(ROWS), LABELS, tasks, offset)
    scores = learnt.predict(flatten(ROWS))
    np.testing.assert_allclose(expected.predict(flatten(ROWS)), scores, rtol=1e-4)


def test_a_job_of_which_nothing_is_steered_learns_as_if_there_were_no_model(given: Any) -> None:
    from tunefleet.search.guide import Guide

    alone = Guide.learn(None, "xgb", ROWS, LABELS, TASKS, ())
    assert alone == Guide.learn(given, "xgb", ROWS, LABELS, TASKS, ())


def test_a_job_learns_without_a_pretrained_model() -> None:
    from tunefleet.search.guide import Guide

    guide = Guide.load(None, "xgb", Guide.learn(None, "xgb", ROWS, LABELS, TASKS, ()))
    assert guide is not None
    assert np.corrcoef(guide.predict([PROGRAMS])[0], LABELS)[0, 1] > 0.9
