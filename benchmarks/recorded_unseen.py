"""A device that no model has seen, then with a tenth of its own records, for `transfer.py`.

Sources are all other recorded devices of the same kind (GPU or CPU), of whatever tuner, but none
that is the same hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import common
from recorded_devices import DEVICES, evenly
from recorded_ranking import Bench
from tunefleet.costmodel import UnifiedModel, metrics
from tunefleet.dataset.rows import Codes

ZERO, TENTH, NATIVE, UNIFIED = "zero-shot", "a tenth", "native", UnifiedModel.name
#: How far below XGB on an unseen device; aims in top-5.
BEHIND, TOP5, BEHIND_NATIVE = 0.02, 0.95, 0.02
#: Random rankings drawn to tell how far one of them may be from what is expected.
_DRAWN = 100


@dataclass(frozen=True)
class Unseen(Bench):
    """A device that tests, of a fleet of all devices."""

    def rows(self) -> Iterator[dict[str, Any]]:
        yield self.chance()
        device = DEVICES[self.name]
        sources = [
            name
            for name in self.fleet.parts
            if DEVICES[name].key != device.key and DEVICES[name].kind == device.kind
        ]
        train, held = (self.drawn(sources, p, n) for p, n in self._sizes(self.options.sources))
        models: list[Any] = []
        for kind in ("xgb", "attention", UNIFIED):
            models, seconds = self.train(kind, train, held)
            yield from self.of_seeds(ZERO, models, len(train), seconds)
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


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    found = []
    for device in dict.fromkeys(row["device"] for row in rows):
        of = {(r["data"], r["model"]): r for r in rows if r["device"] == device}
        unified, native = of[ZERO, UNIFIED], of[NATIVE, "xgb"]
        for score in ("top1", "top5"):
            value, name = unified[score], f"{device}: unseen {score} less"
            chance, xgb = of["-", "random"][score], of[ZERO, "xgb"][score]
            found.append(common.at_least(f"{name} chance", value - chance, 0.0, "condition"))
            found.append(common.at_least(f"{name} XGB's", value - xgb, -BEHIND, "condition"))
        top5 = unified["top5"]
        found.append(common.at_least(f"{device}: unseen top5", top5, TOP5, "aim"))
        found.append(common.at_least(f"{device}: unseen top5 less native XGB's",
                                     top5 - native["top5"], -BEHIND_NATIVE, "aim"))  # fmt: skip
        for data in (TENTH, NATIVE):
            ahead = of[TENTH, UNIFIED]["top1"] - of[data, "xgb"]["top1"]
            name = f"{device}: top1 of a tenth less XGB's of {data}"
            found.append(common.at_least(name, ahead, 0.0, "condition"))
    return found
