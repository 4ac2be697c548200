"""Forecasts of recorded searches, replayed: how often their bounds hold, and how wide they are.

Each search is stopped after parts of its trials, and forecast from the trials and the forecasts of
searches of other networks alone: a network is left out with all its searches, on every device.

    interval   10 to 90 % of the latency at its end: how often that holds, and its score (its width
               and 10 times what it misses by), in percent of the latency
    time       10 to 90 % of the time at which a latency is reached that it did reach
    unlikely   targets of 0.8, 0.9, 1.0 and 1.1 of its final latency at a third of its trials, which
               are found to be out of reach below a probability chosen on the other networks

Beside it are others that have bounds by the same pairs of forecast and truth: no further gain, the
mean curve of all networks by the part of the trials, the slope of the last doubling of trials; and
no further gain as it stands, without bounds. With `--searches FILE` the searches of tunefleet
itself in that file (`own_searches.py`) take their place, or with `--home DIR` those of a home;
`--ship FILE` writes what was learned of them as the package has it.

    .venv/bin/python benchmarks/forecasts.py [--quick] [--json FILE]
    .venv/bin/python benchmarks/forecasts.py --searches datasets/searches-epyc.jsonl.gz
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import common
import own_searches
from forecast_replays import (
    MEAN,
    METHODS,
    NONE,
    OURS,
    SLOPE,
    Bench,
    Pair,
    Points,
    calibration,
    distributions,
    learned,
    no_gain,
)
from recorded_searches import RecordedSearch, searches, searches_of
from tunefleet.learning.forecasting import (
    Forecaster,
    Gains,
)
from tunefleet.learning.task_gains import MOMENTS, TaskGains

THIRD = MOMENTS[2]
#: Of the searches of a home, whose tasks are all measured late.
LATER = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
TARGETS = (0.8, 0.9, 1.0, 1.1)
#: Of a judgement: false alarms at most.
FALSE = 0.05
AS_IS = "no further gain, no bounds"
_DRAWS = 1000
#: Searches of no more trials per task are one batch of each, chosen at once.
_BATCH_OF_ANSOR = 64
_QUICK = 24
#: Gains of tasks that the package has.
_SHIPPED = 2000


def intervals(bench: Bench, points: Points, *, bounds: bool = True) -> list[dict[str, Any]]:
    """The latency at the end: a row of each search and moment, in percent of it."""
    rows = []
    chosen = bench.column("part") == 1.0
    for place, gains in distributions(bench, points, chosen).items():
        pair = bench.pairs[place]
        low, middle, high = gains.quantiles() if bounds else (0.0, 0.0, 0.0)
        missed = max(0.0, low - pair.seen) + max(0.0, pair.seen - high)
        rows.append({
            "search": pair.search,
            "network": bench.networks[pair.network],
            "moment": pair.moment,
            "held": missed < 1e-9,
            "score": 100 * (high - low + 10 * missed),
            "width": 100 * (high - low),
            "error": 100 * abs(middle - pair.seen),
        })  # fmt: skip
    return rows


def of_searches(rows: Sequence[dict[str, Any]], name: str, seed: int = 0) -> dict[str, float]:
    """The mean, and 95 % of means where searches are drawn with replacement."""
    own: dict[int, list[float]] = {}
    for row in rows:
        own.setdefault(row["search"], []).append(float(row[name]))
    sums = np.array([[sum(values), len(values)] for values in own.values()])
    draws = np.random.default_rng(seed).integers(len(sums), size=(_DRAWS, len(sums)))
    means = sums[draws, 0].sum(1) / sums[draws, 1].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": float(sums[:, 0].sum() / sums[:, 1].sum()), "low": float(low),
            "high": float(high)}  # fmt: skip


def judged(bench: Bench, points: Points) -> list[dict[str, Any]]:
    """Each target at a third of the trials: whether it is found to be out of reach."""
    network = bench.column("network")
    chosen = (bench.column("part") == 1.0) & (bench.column("moment") == THIRD)
    rows = []
    for held in range(len(bench.networks)):
        own = distributions(bench, points, chosen & (network == held))
        if not own:
            continue
        known = distributions(bench, points, chosen & (network != held), held)
        threshold = threshold_of(probabilities(bench, known))
        rows += [
            {**row, "unlikely": row["probability"] < threshold, "threshold": threshold}
            for row in probabilities(bench, own)
        ]
    return rows


def probabilities(bench: Bench, gains: dict[int, Gains]) -> list[dict[str, Any]]:
    return [
        {
            "search": bench.pairs[place].search,
            "target": target,
            "met": target >= 1,
            "probability": each.probability(bench.pairs[place].seen - math.log(target) - 1e-9),
        }
        for place, each in gains.items()
        for target in TARGETS
    ]


def threshold_of(rows: Sequence[dict[str, Any]]) -> float:
    """The largest probability below which no more than 5 % of the targets lie that are met."""
    met = sorted(row["probability"] for row in rows if row["met"])
    return float(met[int(FALSE * len(met))])


def times(bench: Bench, points: Points) -> list[dict[str, Any]]:
    """When the final latency and 1.1 times it are reached, from each moment, in trials: whether
    10 to 90 % hold it. After the end is later than all."""
    rows = []
    everything = distributions(bench, points, np.full(len(bench.pairs), True))
    for search, recorded in enumerate(bench.searches):
        for moment in bench.moments:
            own = [
                (place, bench.pairs[place])
                for place in everything
                if bench.pairs[place].search == search and bench.pairs[place].moment == moment
            ]
            if own:
                rows += _times(recorded, search, moment, own, everything)
    return rows


def _times(
    recorded: RecordedSearch,
    search: int,
    moment: float,
    own: Sequence[tuple[int, Pair]],
    gains: dict[int, Gains],
) -> list[dict[str, Any]]:
    whole = len(recorded.order)
    trials = round(moment * whole)
    now_s, end_s = recorded.latency_s(trials), recorded.latency_s(whole)
    places = np.array([0.0, *(pair.part for _, pair in own)])
    rows = []
    for target in (1.0, 1.1):
        need = math.log(now_s / (target * end_s))
        if need <= 0:
            continue
        chances = [0.0, *(gains[place].probability(need - 1e-9) for place, _ in own)]
        chance = np.maximum.accumulate(chances)
        steps = np.linspace(0, 1, 41)
        likely = np.interp(steps, places, chance)
        latencies = [recorded.latency_s(trials + round(step * (whole - trials))) for step in steps]
        reached = float(steps[np.argmax(np.array(latencies) <= 1.0001 * target * end_s)])
        before = float(np.interp(max(0.0, reached - 0.025), steps, likely))
        after = float(np.interp(reached, steps, likely))
        held = after >= 0.1 and before <= 0.9
        rows.append({"search": search, "target": target, "moment": moment, "held": held})
    return rows


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.searches is not None:
        recorded = own_searches.load(options.searches)
    elif options.home is not None:
        recorded = searches_of(options.home)
    else:
        common.need_data()
        recorded = searches()
    moments = MOMENTS if options.home is None else LATER
    if options.ship is not None:
        return ship(options.ship, Bench.of(recorded, moments))
    if options.quick:
        recorded = recorded[:: max(1, len(recorded) // _QUICK)]
    if not recorded:
        raise common.Skip("no logs of searches in the recorded measurements")
    bench = Bench.of(recorded, moments)
    print(f"{len(bench.searches)} searches of {len(bench.networks)} networks, "
          f"{sum(len(s.order) for s in bench.searches)} trials")  # fmt: skip
    figures: dict[str, Any] = {"searches": [described(s) for s in bench.searches]}
    table = []
    every = {name: intervals(bench, points) for name, points in METHODS.items()}
    every[AS_IS] = intervals(bench, no_gain, bounds=False)
    for name, rows in every.items():
        own = {each: of_searches(rows, each) for each in ("held", "score", "width", "error")}
        scores = {
            f"at {at:.0%}": float(np.mean(own_scores))
            for at in bench.moments
            if (own_scores := [r["score"] for r in rows if r["moment"] == at])
        }
        table.append({"method": name, **{k: told(v) for k, v in own.items()}, **scores})
        figures[name] = own
    common.table(table, list(table[0]))
    networks = by_network(bench, every)
    print()
    common.table(networks, list(networks[0]))
    figures["networks"] = networks
    lines: list[dict[str, Any]] = []
    if options.home is None:
        lines = judgements(bench)
        print()
        common.table(lines, list(lines[0]))
    timed = of_searches(times(bench, learned), "held")
    print(f"\ntime of a target that is reached, between 10 and 90 %: {told(timed)}")
    figures |= {"unlikely": lines, "time": timed}
    shown = checks(bench, figures, lines) if options.home is None else []
    return common.finish("forecasts", started, figures, shown, options.json)


def judgements(bench: Bench) -> list[dict[str, Any]]:
    """What is found to be out of reach, by each method; ours also where searches are long."""
    verdicts = {name: judged(bench, METHODS[name]) for name in (OURS, MEAN, NONE)}
    lines = [{"method": name, **alarms(rows)} for name, rows in verdicts.items()]
    lengths = [float(np.median([len(t.latencies_s) for t in s.tasks])) for s in bench.searches]
    long = {number for number, length in enumerate(lengths) if length > _BATCH_OF_ANSOR}
    later = [row for row in verdicts[OURS] if row["search"] in long]
    if later:
        name = f"{OURS}, {len(long)} searches of more than {_BATCH_OF_ANSOR} trials a task"
        lines.append({"method": name, **alarms(later)})
    return lines


def ship(path: Path, bench: Bench) -> int:
    """What tasks gained, and forecasts of each search from those of other networks."""
    gains = thinned(TaskGains.of(bench.searches))
    made = Forecaster(gains, calibration(bench, learned(bench, -1), ()))
    value = {"gains": gains.to_json(), "calibration": made.calibration.to_json()}
    text = json.dumps(value, separators=(",", ":"))
    path.write_text(f"{text}\n", encoding="utf-8")
    print(f"wrote {path}: {len(gains)} gains of {gains.tasks} tasks, "
          f"{len(made.calibration)} forecasts, {len(text) / 1e3:.0f} kB")  # fmt: skip
    return 0


def thinned(gains: TaskGains) -> TaskGains:
    """Some of the rows, drawn: the file is part of the package."""
    rows = np.random.default_rng(0).permutation(len(gains))[:_SHIPPED]
    return replace(
        gains, signs=gains.signs[rows], ratio=gains.ratio[rows], weight=gains.weight[rows]
    )


def told(value: dict[str, float]) -> str:
    return "{mean:.3g} ({low:.3g}-{high:.3g})".format(**value)


def described(search: RecordedSearch) -> dict[str, Any]:
    return {"search": search.name, "network": search.network, "device": search.origin.device,
            "method": search.origin.method, "tasks": len(search.tasks), "trials": len(search.order),
            "own order": search.in_own_order, "files": list(search.files)}  # fmt: skip


def by_network(bench: Bench, every: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    for network in bench.networks:
        own = [row for row in every[OURS] if row["network"] == network]
        row: dict[str, Any] = {"network": network, "searches": len({r["search"] for r in own}),
                               "held": float(np.mean([r["held"] for r in own]))}  # fmt: skip
        for name in (OURS, MEAN, NONE):
            scores = [r["score"] for r in every[name] if r["network"] == network]
            row[f"score, {name}"] = float(np.mean(scores))
        rows.append(row)
    return rows


def alarms(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    false = of_searches([r for r in rows if r["met"]], "unlikely")
    found = of_searches([r for r in rows if not r["met"]], "unlikely")
    each = {
        f"at {target:g}": float(np.mean([r["unlikely"] for r in rows if r["target"] == target]))
        for target in TARGETS
    }
    thresholds = [row["threshold"] for row in rows]
    return {"false alarms": told(false), "found": told(found), **each,
            "threshold": f"{min(thresholds):.3f}-{max(thresholds):.3f}",
            "false": false["mean"], "right": found["mean"]}  # fmt: skip


def checks(bench: Bench, figures: dict[str, Any], lines: Sequence[dict[str, Any]]) -> list[Any]:
    held, score = figures[OURS]["held"]["mean"], figures[OURS]["score"]["mean"]
    found = [
        common.at_least("searches replayed", len(bench.searches), 40, "condition"),
        common.at_least("the 80 % interval holds", held, 0.7, "condition"),
        common.at_most("the 80 % interval holds, at most", held, 0.9, "condition"),
    ]
    for name in (MEAN, NONE, AS_IS, SLOPE):
        ratio = score / figures[name]["score"]["mean"]
        kind: common.Kind = "condition" if name != SLOPE else "aim"
        found.append(common.at_most(f"interval score over that of: {name}", ratio, 1.0, kind))
    found.append(common.at_most("false alarms", lines[0]["false"], FALSE, "condition"))
    found.append(common.at_least("found at a third", lines[0]["right"], 0.7, "condition"))
    return found


def parser() -> argparse.ArgumentParser:
    made = common.parser(__doc__ or "")
    made.add_argument(
        "--home", type=Path, help="the searches of this home instead of recorded ones"
    )
    made.add_argument("--searches", type=Path, help="those of this file instead")
    made.add_argument("--ship", type=Path, help="write what the package ships to this file")
    return made


if __name__ == "__main__":
    common.run(main, parser())
