"""A device that no model has seen, then with a tenth of its own records, for `transfer.py`.

Sources are all other recorded devices of the same kind (GPU or CPU), of whatever tuner, but none
that is the same hardware. Every draw has its own records to learn and to test, and its own seed of
models: on a small test even an order by chance is below what is expected of it half of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import common
from recorded_devices import DEVICES, evenly
from recorded_ranking import Bench, Scores
from tunefleet.costmodel import UnifiedModel, metrics
from tunefleet.dataset.rows import Codes

ZERO, TENTH, NATIVE, UNIFIED = "zero-shot", "a tenth", "native", UnifiedModel.name
#: How far below XGB on an unseen device; aims in top-5.
BEHIND, TOP5, BEHIND_NATIVE = 0.02, 0.95, 0.02
#: Random rankings drawn to tell how far one of them may be from what is expected.
_DRAWN = 100


@dataclass(frozen=True)
class Unseen(Bench):
    """A device that tests, of a fleet of all devices, which is draw number `draw`."""

    draw: int

    @property
    def seeds(self) -> Iterable[int]:
        return [self.draw]

    def scores(self, model: Any) -> Scores:
        """Each task by itself, as a search asks: contexts alone do not always tell tasks apart."""
        test, tasks = self.test, self.fleet.records.rows.task[self.test]
        scores = np.zeros(len(test))
        for task in np.unique(tasks):
            own = tasks == task
            scores[own] = model.predict(self.fleet.programs(model.name, test[own]))
        return scores

    def rows(self) -> Iterator[dict[str, Any]]:
        return ({**row, "draw": self.draw} for row in self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield self.chance()
        device = DEVICES[self.name]
        sources = [
            name
            for name in self.fleet.parts
            if DEVICES[name].key != device.key and DEVICES[name].kind == device.kind
        ]
        train, held = (self.drawn(sources, p, n) for p, n in self._sizes(self.options.sources))
        models: list[Any] = []
        for kind in ("xgb", UNIFIED) if self.options.zero_shot else ("xgb", "attention", UNIFIED):
            models, seconds = self.train(kind, train, held)
            yield from self.of_seeds(ZERO, models, len(train), seconds)
        if not self.options.zero_shot:
            yield from self._own(models)

    def chance(self) -> dict[str, Any]:
        """What is expected of a random ranking, with what 90 % of single ones come to."""
        rows, test, generator = self.fleet.records.rows, self.test, np.random.default_rng(0)
        labels, tasks = rows.labels[test], rows.task[test]
        drawn = [metrics.ranking(labels, generator.random(len(test)), tasks) for _ in range(_DRAWN)]
        ranges = {
            f"{name}_range": "{:.3f}-{:.3f}".format(
                *np.quantile([getattr(one, name) for one in drawn], (0.05, 0.95))
            )
            for name in ("top1", "top5")
        }
        return {**self.random(), **ranges}

    def _own(self, models: Sequence[UnifiedModel]) -> Iterator[dict[str, Any]]:
        """XGB of all records of the device; it and `models`, which go on, of a tenth of them."""
        (_, most), (_, held_most) = self._sizes(self.options.records)
        everything = self.drawn([self.name], "train", most)
        train = self.drawn([self.name], "train", len(everything) // 10)
        own = self.fleet.parts[self.name].validation
        held = self.drawn([self.name], "validation", max(len(own) // 10, min(100, len(own))))
        for data, numbers in ((NATIVE, everything), (TENTH, train)):
            trees, seconds = self.train("xgb", numbers, own[:held_most])
            yield from self.of_seeds(data, trees, len(numbers), seconds)
        given, validation = (self.fleet.measured(UNIFIED, numbers) for numbers in (train, held))
        grown = [
            model.learned_on(given, validation, seed=model.seed, device=self.options.device)
            for model in models
        ]
        yield from self.of_seeds(TENTH, grown, len(train), 0.0)

    def drawn(self, names: Sequence[str], part: str, most: int) -> Codes:
        """At most so many records of a part of these devices, evenly over devices and tasks."""
        generator, rows = np.random.default_rng(0), self.fleet.records.rows
        each = [getattr(self.fleet.parts[name], part) for name in names]
        shares = [evenly(numbers, rows.task, most // len(each), generator) for numbers in each]
        return np.sort(np.concatenate(shares))

    @staticmethod
    def _sizes(records: int) -> tuple[tuple[str, int], tuple[str, int]]:
        return ("train", records), ("validation", records // 4)


def over_draws(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over draws and what each of them came to."""
    found = []
    for which in dict.fromkeys((row["device"], row["data"], row["model"]) for row in rows):
        own = [row for row in rows if (row["device"], row["data"], row["model"]) == which]
        mean: dict[str, Any] = dict(zip(("device", "data", "model"), which, strict=True))
        for score in ("top1", "top5"):
            mean[score] = float(np.mean([row[score] for row in own]))
            mean[f"{score}_range"] = " ".join(f"{row[score]:.3f}" for row in own)
        found.append(mean)
    return found


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    """Of the means over draws; of chance and XGB also how many single draws are below."""
    found = []
    means = over_draws(rows)
    for device in dict.fromkeys(row["device"] for row in rows):
        of = {(r["data"], r["model"]): r for r in means if r["device"] == device}
        unified = of[ZERO, UNIFIED]
        for score in ("top1", "top5"):
            name = f"{device}: unseen {score} less"
            for other, bound in ((("-", "random"), 0.0), ((ZERO, "xgb"), -BEHIND)):
                ahead = unified[score] - of[other][score]
                each = _ahead(rows, device, score, other)
                below = f"{sum(value < bound for value in each)} of {len(each)} draws below"
                found.append(common.at_least(f"{name} {other[1]} ({below})", ahead, bound,
                                             "condition"))  # fmt: skip
        top5 = unified["top5"]
        found.append(common.at_least(f"{device}: unseen top5", top5, TOP5, "aim"))
        if (NATIVE, "xgb") not in of:
            continue
        behind = top5 - of[NATIVE, "xgb"]["top5"]
        found.append(common.at_least(f"{device}: unseen top5 less native XGB's", behind,
                                     -BEHIND_NATIVE, "aim"))  # fmt: skip
        for data in (TENTH, NATIVE):
            ahead = of[TENTH, UNIFIED]["top1"] - of[data, "xgb"]["top1"]
            name = f"{device}: top1 of a tenth less XGB's of {data}"
            found.append(common.at_least(name, ahead, 0.0, "condition"))
    return found


def _ahead(
    rows: list[dict[str, Any]], device: str, score: str, other: tuple[str, str]
) -> list[float]:
    """How far the unified model is ahead of another on each draw."""
    of = {(r["data"], r["model"], r["draw"]): r[score] for r in rows if r["device"] == device}
    return [of[ZERO, UNIFIED, draw] - of[*other, draw] for draw in sorted({k[2] for k in of})]
