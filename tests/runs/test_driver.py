"""What was committed of a network's way is not done again; what is gone is."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.jobs import SETTINGS
from tunefleet import BenchmarkContext, Session
from tunefleet.core.events import Note
from tunefleet.core.settings import SHIPPED_MODEL
from tunefleet.core.step import StepKind
from tunefleet.costmodel.registry import registry_of
from tunefleet.errors import InputError
from tunefleet.stages import runner

pytestmark = pytest.mark.tvm


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[StepKind]:
    """The steps that run, in their order."""
    kinds: list[StepKind] = []

    def counted(kind: StepKind, step: Any) -> Any:
        def run(place: Any, request: Any) -> Any:
            kinds.append(kind)
            return step(place, request)

        return run

    steps = {kind: counted(kind, step) for kind, step in runner.STEPS.items()}
    monkeypatch.setattr(runner, "STEPS", steps)
    return kinds


def session(home: Path) -> Session:
    return Session(BenchmarkContext("cpu", threads=1, home=home))


def begun(home: Path, network: Path) -> Session:
    return session(home).from_network(network).autotune(trials=2, settings=SETTINGS)


def test_a_job_that_goes_on_does_nothing_again(
    tmp_path: Path, small: Path, ran: list[StepKind]
) -> None:
    with begun(tmp_path, small) as first:
        job = first.build().result().job
    assert ran == [
        StepKind.IMPORT,
        StepKind.CHECK,
        StepKind.BUILD_FINALISTS,
        StepKind.SELECT_WINNERS,
        StepKind.COMPILE,
        StepKind.VERIFY,
    ]
    assert {path.name for path in (tmp_path / "objects").iterdir()} >= {job}
    ran.clear()
    with begun(tmp_path, small) as second:
        result = second.build().save().evaluate(rounds=2).result()
    assert (result.job, result.resumed) == (job, True)
    assert ran == [StepKind.PUBLISH, StepKind.MEASURE]
    assert list((tmp_path / "objects").iterdir()) == []


def test_what_is_gone_is_made_again(tmp_path: Path, small: Path, ran: list[StepKind]) -> None:
    with begun(tmp_path, small) as first:
        first.build()
    shutil.rmtree(tmp_path / "objects")
    ran.clear()
    with begun(tmp_path, small) as second:
        path = Path(str(second.build().save().result().artifact))
    assert (path / "module.so").is_file()
    assert ran[:2] == [StepKind.IMPORT, StepKind.CHECK]
    assert [kind for kind in ran if kind is StepKind.COMPILE] == [StepKind.COMPILE]


def test_a_session_without_a_job_leaves_nothing(
    tmp_path: Path, small: Path, ran: list[StepKind]
) -> None:
    with session(tmp_path) as one:
        one.from_network(small)
        assert list((tmp_path / "objects").iterdir())
    assert list((tmp_path / "objects").iterdir()) == []
    with session(tmp_path) as another:
        another.from_network(small)
    assert ran == [StepKind.IMPORT, StepKind.CHECK] * 2


@pytest.mark.long
def test_what_a_session_built_without_a_search_is_not_removed_by_another(
    tmp_path: Path, small: Path, ran: list[StepKind]
) -> None:
    with session(tmp_path) as one:
        one.from_network(small).build()
        before = sorted(path.name for path in (tmp_path / "objects").glob("*/*"))
        with session(tmp_path) as another:
            another.from_network(small)
        assert before == sorted(path.name for path in (tmp_path / "objects").glob("*/*"))
        assert (Path(str(one.save().result().artifact)) / "module.so").is_file()
    assert ran[-1] == StepKind.PUBLISH
    assert list((tmp_path / "objects").iterdir()) == []


@pytest.mark.parametrize("precisions", [("float32", "bf16"), ("float32",)])
def test_the_user_is_told_which_tasks_the_pretrained_model_does_not_steer(
    precisions: tuple[str, ...], small: Path, tmp_path: Path
) -> None:
    shipped = registry_of(None).get(SHIPPED_MODEL)
    learned = tuple(each for each in shipped.card.learned if each.precision in precisions)
    card = replace(shipped.card, name="own", learned=learned).with_id()
    registry_of(tmp_path).add(card, shipped.data())
    events: list[Any] = []
    context = BenchmarkContext("cpu", threads=1, home=tmp_path)
    settings = replace(SETTINGS, search=replace(SETTINGS.search, pretrained="own"))
    with Session(context, observer=events.append) as one:
        one.from_network(small, precision="bf16").autotune(trials=1, settings=settings)
        notes = one.result().notes
    remarks = [text for text in notes if "pretrained" in text]
    if "bf16" in precisions:
        assert remarks == []
        return
    (remark,) = remarks
    assert re.fullmatch(
        "[1-9][0-9]* of [1-9][0-9]* tasks are searched without the pretrained model own: "
        "it has learned no programs on bfloat16",
        remark,
    )
    assert Note(remark) in events


def test_a_network_that_is_none_leaves_no_job(tmp_path: Path) -> None:
    with session(tmp_path) as one, pytest.raises(InputError, match="does not exist"):
        one.from_network(tmp_path / "nowhere.onnx")
    assert not (tmp_path / "artifacts").exists()
