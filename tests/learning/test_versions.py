from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tunefleet.costmodel.card import Card, Learned
from tunefleet.costmodel.registry import Registry
from tunefleet.dataset.division import Division
from tunefleet.dataset.splits import divide
from tunefleet.errors import InputError
from tunefleet.features import sequences
from tunefleet.learning.evaluation import evaluate
from tunefleet.learning.inputs import Inputs, all_rows
from tunefleet.learning.lineage import split_used
from tunefleet.learning.records import Records
from tunefleet.learning.training import Options, train
from tunefleet.learning.versions import Origin, check_parent, publish

from .made import made_records, silent


def published(directory: Path, records: Records, parent: Card | None = None):
    split = divide(records.rows, Division())
    inputs = Inputs.of(records, all_rows(split), sequences.SCHEMA, silent)
    parts = inputs.parts("xgb", split)
    trained = train("xgb", parts.train, parts.validation, seeds=2,
                    options=Options(), progress=silent)  # fmt: skip
    tested = evaluate(trained.members, parts.test)
    origin = Origin("mine", sequences.SCHEMA, records, Division(), split, parent)
    return publish(Registry(directory), origin, trained, tested, created=1.7e9), parts, trained


def a_card(records: Records) -> Card:
    """The card of a model that learned from these records, without the model."""
    split = divide(records.rows, Division())
    return Card(
        name="mine",
        kind="xgb",
        features=sequences.SCHEMA,
        created=1.7e9,
        records=records.used(all_rows(split)),
        split=split_used(Division(), split),
        seeds=(0,),
        files=("0" * 64,),
        metrics=(),
    )


def test_a_version_tells_where_it_comes_from(tmp_path: Path) -> None:
    records = made_records()
    entry, parts, _ = published(tmp_path, records)
    card = entry.card
    assert (card.name, card.kind, card.features, card.created) == (
        "mine", "xgb", "sequences/1", 1.7e9)  # fmt: skip
    assert card.split.train == len(parts.train.labels)
    assert [r.sha256 for r in card.records] == [f.sha256 for f in records.files]
    assert sum(r.used for r in card.records) == len(records.rows)
    assert card.settings == {"rounds": 60, "max_depth": 6, "threads": 1}
    assert {"python", "xgboost", "numpy"} <= card.toolchain.keys()
    assert card.parent is None
    assert "one task only" in card.limits
    assert card.learned == (Learned("gpu", "float32", card.split.train),)


def test_a_version_predicts_as_what_was_trained(tmp_path: Path) -> None:
    entry, parts, trained = published(tmp_path, made_records())
    (loaded,) = Registry(tmp_path).get(entry.card.id).load()
    expected = trained.members[0].predict(parts.test.programs)
    np.testing.assert_allclose(expected, loaded.predict(parts.test.programs), rtol=1e-6)


def test_a_version_names_its_parent(tmp_path: Path) -> None:
    first, *_ = published(tmp_path, made_records())
    second, *_ = published(tmp_path, made_records(), first.card)
    assert second.card.parent == first.card.id
    assert second.card.id != first.card.id
    assert second.card.learned == first.card.learned  # trees learn anew


def test_a_parent_of_other_features_is_refused() -> None:
    parent = replace(a_card(made_records()), features="per-store/1")
    with pytest.raises(InputError, match="uses the features per-store/1, not sequences/1"):
        check_parent(parent, "sequences/1")
