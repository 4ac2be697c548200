"""Which tasks of a job its pretrained model steers, and what the user is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.costmodel.cards import MEMBERS, a_card
from tests.store import values as v
from tunefleet.core.home import Home
from tunefleet.core.stage import (
    BuildResult,
    Profiled,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    UpdateResult,
)
from tunefleet.core.target import CpuTarget
from tunefleet.core.task import WeightedTask
from tunefleet.costmodel.card import Learned
from tunefleet.costmodel.registry import Registry, registry_of
from tunefleet.features import pack
from tunefleet.features.tilings import WIDTH
from tunefleet.stages.place import JobTask, Workplace
from tunefleet.stages.runner import StageRunner
from tunefleet.stages.steering import remarks
from tunefleet.store import MemoryStore

pytestmark = pytest.mark.tvm

FLOATS, INTEGERS = Learned("x86", "float32", 90), Learned("x86", "int8", 10)
FEATURES = pack(np.ones((2, WIDTH), np.float32))


@pytest.fixture
def models(tmp_path: Path) -> Registry:
    return registry_of(tmp_path)


def with_model(models: Registry, *learned: Learned, **spec: Any) -> Any:
    """A specification of a job that a model steers which has learned this."""
    entry = models.add(a_card(learned=learned), MEMBERS)
    plain = replace(v.make_spec(), **spec)
    search = replace(plain.settings.search, pretrained=entry.card.id)
    return replace(plain, settings=replace(plain.settings, search=search))


def tasks_of(*precisions: str) -> list[WeightedTask]:
    made = [v.make_task(f"{i} in {precision}") for i, precision in enumerate(precisions)]
    return [
        replace(weighted, task=replace(weighted.task, precision=precision))
        for weighted, precision in zip(made, precisions, strict=True)
    ]


def told(models: Registry, spec: Any, *precisions: str) -> tuple[str, ...]:
    return remarks(models, spec, [weighted.task for weighted in tasks_of(*precisions)])


def test_the_user_is_told_what_is_searched_without_the_model(models: Registry) -> None:
    spec = with_model(models, FLOATS)
    assert told(models, spec, "float32", "int8", "int8") == (
        "2 of 3 tasks are searched without the pretrained model mine: it has learned no programs "
        "on 8-bit integers",
    )
    (remark,) = told(models, spec, "bf16", "int8")
    assert remark.endswith("no programs on bfloat16 or 8-bit integers")


def test_the_user_is_told_of_an_architecture_that_was_not_learned(models: Registry) -> None:
    board = CpuTarget("cortex-a72", 1, mtriple="aarch64-linux-gnu")
    (remark,) = told(models, with_model(models, FLOATS, target=board), "float32")
    assert remark.startswith("1 of 1 tasks are")
    assert remark.endswith("it has learned no programs for ARM processors")


def test_nothing_is_told_where_the_model_steers_everything(models: Registry) -> None:
    assert told(models, with_model(models, FLOATS, INTEGERS), "float32", "int8") == ()
    assert told(models, with_model(models, FLOATS), "float32") == ()


def test_nothing_is_told_without_a_model_or_of_one_that_is_gone(models: Registry) -> None:
    spec = v.make_spec()
    for name in ("", "ab" * 16):
        search = replace(spec.settings.search, pretrained=name)
        gone = replace(spec, settings=replace(spec.settings, search=search))
        assert told(models, gone, "int8") == ()


def test_a_card_of_before_steers_everything_and_the_user_is_told(models: Registry) -> None:
    (remark,) = told(models, with_model(models), "float32", "int8")
    assert remark.startswith("the pretrained model mine steers every task: its card is of before")


def test_the_user_is_told_that_a_model_hides_the_one_that_is_shipped(models: Registry) -> None:
    (shipped, *_), _ = registry_of(None).list()
    entry = models.add(a_card(name=shipped.card.name, learned=(FLOATS,)), MEMBERS)
    spec = with_model(models, FLOATS)
    search = replace(spec.settings.search, pretrained=entry.card.id)
    hiding = replace(spec, settings=replace(spec.settings, search=search))
    (remark,) = told(models, hiding, "float32")
    assert remark.endswith(f"comes with tunefleet steers by --pretrained {shipped.card.id[:12]}")
    assert entry.card.id[:12] in remark


def commit_trials(store: MemoryStore, task_id: str, count: int = 5) -> None:
    names = [str(n) for n in range(count)]
    chosen = tuple(v.cand(name, features=FEATURES) for name in names)
    measured = tuple(Profiled(name, v.measured(), 0.25) for name in names)
    for result in (SelectResult(chosen), BuildResult(v.built(*names)), ProfileResult(measured)):
        store.work.commit(v.run_of(result, task_id=task_id))


class Asked:
    """A machine that notes what its worker is asked for."""

    def __init__(self, home: Path) -> None:
        self.calls: list[Any] = []
        self.lead = SimpleNamespace(call=self.call)
        self.scratch = home

    def call(self, function: Any, *arguments: Any) -> Any:
        self.calls.append((function.__name__, arguments))
        return SelectResult(()) if function.__name__ == "run_select" else b"model"


def test_a_job_searches_with_its_model_where_that_has_learned_the_kind(
    models: Registry, tmp_path: Path
) -> None:
    store, asked = MemoryStore(), Asked(tmp_path)
    spec = with_model(models, FLOATS)
    job = store.jobs.open(spec, job_id="job", now=1.0)
    floats, integers = tasks_of("float32", "int8")
    store.work.put_tasks("job", [floats, integers])
    runner = StageRunner(Workplace(store, asked, Home(tmp_path)))  # type: ignore[arg-type]
    for weighted in (floats, integers):
        key = StageKey("job", weighted.task.task_id, 0, StageKind.SELECT)
        runner.run(JobTask(job, weighted.task), key, 4)
    (_, (_, model, *_)), (_, (_, none, *_)) = asked.calls
    assert (model.kind, none) == ("random", None)
    for weighted in (floats, integers):
        commit_trials(store, weighted.task.task_id)
    key = StageKey("job", floats.task.task_id, 0, StageKind.UPDATE)
    run = runner.run(JobTask(job, floats.task), key, 4)
    name, (again, _, _, _, tasks, steered) = asked.calls[-1]
    assert (name, again, run.result) == ("run_update", model, UpdateResult(b"model", 10))
    assert set(tasks) == {floats.task.task_id, integers.task.task_id}
    assert steered == {floats.task.task_id}
