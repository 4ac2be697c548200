from __future__ import annotations

import sys

import numpy as np
import pytest

from tunefleet.costmodel import MODELS, CostModel, LGBMModel, MLPModel, _torch
from tunefleet.dataset.division import Division
from tunefleet.dataset.splits import divide
from tunefleet.errors import InputError, SetupError
from tunefleet.features import sequences
from tunefleet.learning import training
from tunefleet.learning.inputs import Inputs, Parts, all_rows
from tunefleet.learning.training import Options, seeds_of, settings_of, train

from .made import made_records, silent


def parts_for(kind: str) -> Parts:
    records = made_records()
    split = divide(records.rows, Division())
    return Inputs.of(records, all_rows(split), sequences.SCHEMA, silent).parts(kind, split)


def trained(kind: str, seeds: int = 2, epochs: int | None = None) -> training.Trained:
    parts = parts_for(kind)
    return train(kind, parts.train, parts.validation, seeds=seeds,
                 options=Options(epochs), progress=silent)  # fmt: skip


@pytest.mark.parametrize("kind", ["lgbm", "random", "xgb"])
def test_members_score_programs(kind: str) -> None:
    found = trained(kind)
    test = parts_for(kind).test
    assert all(len(m.predict(test.programs)) == len(test.labels) for m in found.members)
    assert len(found.members) == len(found.seconds) == len(found.seeds)


@pytest.mark.frameworks
def test_each_seed_is_a_member_of_its_own() -> None:
    one, other = trained("mlp", epochs=2).members
    test = parts_for("mlp").test.programs
    assert not np.array_equal(one.predict(test), other.predict(test))


@pytest.mark.frameworks
def test_attention_goes_on_from_its_parent_which_stays() -> None:
    parts = parts_for("attention")
    options = Options(epochs=2, hidden=8)
    parents = train("attention", parts.train, parts.validation, seeds=1, options=options,
                    progress=silent).members  # fmt: skip
    before = parents[0].predict(parts.test.programs)
    followers = train(
        "attention",
        parts.train,
        parts.validation,
        seeds=2,
        options=Options(epochs=1),
        progress=silent,
        start=parents,
    ).members
    assert [vars(f)["hidden"] for f in followers] == [8, 8]
    assert [vars(f)["seed"] for f in followers] == [0, 1]
    after = [follower.predict(parts.test.programs) for follower in followers]
    assert np.array_equal(parents[0].predict(parts.test.programs), before)
    # One epoch at a small rate: near the parent, and not the same.
    assert all(0 < np.abs(scores - before).max() < 0.2 for scores in after)


@pytest.mark.frameworks
def test_the_width_is_that_of_the_parent() -> None:
    parts = parts_for("attention")
    parents = train("attention", parts.train, parts.validation, seeds=1,
                    options=Options(epochs=1, hidden=8), progress=silent).members  # fmt: skip
    with pytest.raises(InputError, match="the parent determines the width"):
        train("attention", parts.train, parts.validation, seeds=1, options=Options(hidden=4),
              progress=silent, start=parents)  # fmt: skip


def test_a_kind_without_chance_has_one_member() -> None:
    assert seeds_of("xgb", 3) == (0,)
    assert seeds_of("lgbm", 3) == (0, 1, 2)


def test_the_test_part_is_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Spy(LGBMModel):
        def fit(self, programs, labels, tasks, validation=None):
            assert validation is not None
            seen.extend((len(programs), len(validation.programs)))
            return self

    monkeypatch.setitem(MODELS, "lgbm", Spy)
    trained("lgbm", seeds=1)
    parts = parts_for("lgbm")
    assert seen == [len(parts.train.labels), len(parts.validation.labels)]


def test_models_get_the_options_that_they_know() -> None:
    model: CostModel = Options(epochs=7).model("mlp", 5)
    assert isinstance(model, MLPModel)
    assert (model.epochs, model.seed) == (7, 5)
    assert Options(epochs=7).model("xgb", 5).name == "xgb"


def test_settings_are_told_without_the_seed() -> None:
    assert settings_of(LGBMModel(rounds=5, seed=9)) == {"rounds": 5, "leaves": 72, "threads": 1}


@pytest.mark.parametrize(
    ("options", "kinds", "reason"),
    [
        (Options(), ["svm"], "unknown kind of cost model 'svm'; choose one of"),
        (Options(epochs=3), ["xgb", "lgbm"], "xgb, lgbm is not trained in epochs"),
        (Options(device="cuda"), ["xgb"], "trains on the CPU only"),
        (Options(device="tpu"), ["xgb"], "unknown device 'tpu'"),
        (Options(hidden=3), ["attention"], "attention: 3 is not a multiple of its 2 heads"),
        (Options(hidden=12), ["lgbm", "unified"], "unified: 12 is not a multiple of its 8 heads"),
        (Options(epochs=0), ["mlp"], "invalid options for mlp"),
        (Options(epochs=0), ["attention"], "invalid options for attention"),
        (Options(epochs=0), ["unified"], "invalid options for unified"),
    ],
)
def test_options_that_cannot_be_are_refused(
    options: Options, kinds: list[str], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        options.check(kinds)


class OnDevice(MLPModel):
    def __init__(self, device: str = "cpu", seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.device = device


def test_cuda_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "mlp", OnDevice)
    monkeypatch.setattr(training, "has_cuda", lambda: False)
    with pytest.raises(SetupError, match="no CUDA device"):
        Options(device="cuda").check(["mlp"])


def test_cuda_goes_to_models_that_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "mlp", OnDevice)
    monkeypatch.setattr(training, "has_cuda", lambda: True)
    options = Options(device="cuda")
    options.check(["mlp", "xgb"])
    assert vars(options.model("mlp", 1))["device"] == "cuda"


def test_missing_pytorch_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    _torch.torch.cache_clear()
    try:
        with pytest.raises(SetupError, match=r"install tunefleet\[torch\]"):
            trained("mlp")
    finally:
        _torch.torch.cache_clear()
