"""Metrics of the members of a model on a test part, per device, with the random baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel import CostModel, Scores, metrics
from tunefleet.costmodel.card import METRICS, Card, DeviceMetrics
from tunefleet.dataset.rows import Codes
from tunefleet.dataset.splits import divide
from tunefleet.errors import InputError
from tunefleet.learning.inputs import Examples
from tunefleet.learning.lineage import division_of
from tunefleet.learning.records import Records


def evaluate(members: Sequence[CostModel], test: Examples) -> tuple[DeviceMetrics, ...]:
    """The metrics of every member on every device that has a task with a valid trial.

    Failed trials count with the label 0. The errors (rmse, r2) are meaningful for models that
    predict labels only; ranking models have an arbitrary scale. Both cover all records of a device;
    top1, top5 and pca are means over its tasks weighted by their records. Raises InputError for
    programs that the model cannot take, and if no trial is valid.
    """
    test.check("test")
    scores = [_scores(member, test) for member in members]
    per_device = []
    for code, name in enumerate(test.devices.names):
        rows = np.flatnonzero(test.devices.codes == code)
        if len(rows) and test.labels[rows].max() > 0:
            per_device.append(_of_device(name, rows, scores, test))
    return tuple(per_device)


def _scores(member: CostModel, test: Examples) -> Scores:
    try:
        return member.predict(test.programs)
    except ValueError as error:
        raise InputError(
            f"the {member.name} model cannot take these records: {error}",
            cure="give records with the features that it was trained on",
        ) from error


def _of_device(
    name: str, rows: NDArray[np.int64], scores: Sequence[Scores], test: Examples
) -> DeviceMetrics:
    labels, tasks = test.labels[rows], test.tasks[rows]
    chance = asdict(metrics.random_ranking(labels, tasks))
    values = [_of_member(labels, of_member[rows], tasks) for of_member in scores]
    return DeviceMetrics(
        device=name,
        records=len(rows),
        tasks=len(np.unique(tasks)),
        members={metric: tuple(value[metric] for value in values) for metric in METRICS},
        random={metric: float(chance[metric]) for metric in METRICS if metric in chance},
    )


def _of_member(labels: Scores, scores: Scores, tasks: Codes) -> dict[str, float]:
    """Rankings per task; errors over all records together: many tasks have few test records with
    nearly equal labels, for which an explained variance is meaningless."""
    return {
        **{
            name: float(value)
            for name, value in asdict(metrics.ranking(labels, scores, tasks)).items()
        },
        "rmse": metrics.rmse(labels, scores),
        "r2": metrics.r_squared(labels, scores),
    }


def unseen(card: Card, records: Records) -> tuple[Codes, str]:
    """The rows to evaluate a model on, and a note that describes them.

    For the files of the training these are the rows of its test part, for other files all rows.
    Raises InputError if only some of the files were used for training, since no row is then known
    to be unseen, and for programs of another tuner.
    """
    _check_formats(card, records)
    known = [used.sha256 for used in card.records]
    given = [file.sha256 for file in records.files]
    if set(card.inherited) & set(given):
        raise InputError(
            f"the parent of cost model {card.name} was trained on some of these files",
            cure="give other files only",
        )
    if not set(known) & set(given):
        return np.arange(len(records.rows)), "none of these files was trained on"
    if known != given:
        raise InputError(
            f"cost model {card.name} was trained on some of these files",
            cure="give exactly the files of the training, for its test part, or other files only",
        )
    split = divide(records.rows, division_of(card.split))
    return split.test, "these files were trained on: this is the test part of that training"


def _check_formats(card: Card, records: Records) -> None:
    known = {name for used in card.records for name in used.formats}
    others = set(records.formats) - known
    if others:
        raise InputError(
            f"cost model {card.name} was trained on programs of {', '.join(sorted(known))}, but "
            f"there are records of {', '.join(sorted(others))}",
            cure="give records of that tuner, or train a model on these",
        )
