"""The thesis's Table 1 on real work: what sharing a device costs in time and in accuracy.

The same networks are searched one after the other (dedicated resources, on one machine), the same
once more (what the machine does by itself), with each stage of all jobs at once (shared resources,
the worst case) and interleaved (the thesis's optimum). Programs are selected at random, by a seed,
so that all setups measure the same ones. A program's error is how far its latency lies from that
of the first setup.

    .venv/bin/python benchmarks/table1.py --json out.json
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import common
from interference_commands import overlaps

NETWORKS = ("zoo:squeezenet?size=64", "zoo:resnet18?size=64", "zoo:bert_tiny?size=16")
QUICK = ("zoo:tiny_cnn", "zoo:tiny_cnn?size=32")
#: Name, policy, whether jobs share the device.
SETUPS = (
    ("dedicated", "sequential", False),
    ("dedicated again", "sequential", False),
    ("shared", "synchronous", True),
    ("interleaved", "interleaved", False),
)


def tuned(
    home: Path, networks: Sequence[str], setup: tuple[str, str, bool], options: argparse.Namespace
) -> dict[str, Any]:
    """What a setup makes of networks in a home of its own."""
    from tunefleet import BenchmarkContext, tune
    from tunefleet.core.settings import SearchSettings, TuneSettings
    from tunefleet.store import each_job, open_store

    name, policy, shared = setup
    host, device = (options.host_core,), (options.device_core,)
    outcomes = tune(
        networks,
        context=BenchmarkContext(threads=1, home=home, host_cores=host, device_cores=device),
        policy=policy,
        allow_interference=shared,
        trials=16 if options.quick else options.trials,
        settings=TuneSettings(
            SearchSettings(seed=1, cost_model="random", pretrained=""), transfer=False
        ),
        observer=lambda index: lambda event: None,
    )
    for outcome in outcomes:
        if outcome.result is None:
            raise SystemExit(f"{name}: {outcome.network}: {outcome.error}")
    trials = {}
    with closing(open_store(home)) as store:
        spans = store.work.stages_between(0.0, 1e12)
        for job in each_job(store.jobs):
            for weighted in store.work.tasks(job.job_id):
                task_id = weighted.task.task_id
                for trial in store.records.trials(job.job_id, task_id):
                    if trial.latency_s is not None:
                        # One task may be in several networks, each of which measures its program.
                        network, candidate = job.spec.network.name, trial.candidate.candidate_id
                        trials[network, task_id, candidate] = trial.latency_s
    searched_s = max(s.ended_at for s in spans) - min(s.started_at for s in spans)
    profiles, _ = overlaps(home)
    delivered = {
        o.network: o.result.tuned_ms.median for o in outcomes if o.result and o.result.tuned_ms
    }
    print(f"{name}: {searched_s:.0f} s, {len(trials)} programs measured", flush=True)
    return {"s": searched_s, "latencies_s": trials, "at_once": profiles, "delivered": delivered}


def compared(by_setup: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each setup, over the first one."""
    from tunefleet.core.statistics import median

    alone = by_setup[SETUPS[0][0]]
    same = set.intersection(*(set(of["latencies_s"]) for of in by_setup.values()))
    rows = []
    for name, of in by_setup.items():
        shifts = [of["latencies_s"][key] / alone["latencies_s"][key] - 1 for key in same]
        errors = sorted(map(abs, shifts))
        measured = of["delivered"].keys() & alone["delivered"].keys()
        ratios = [of["delivered"][network] / alone["delivered"][network] for network in measured]
        rows.append(
            {
                "setup": name,
                "search, s": of["s"],
                "time": of["s"] / alone["s"],
                "programs": len(same),
                "shift": median(shifts) if shifts else 0.0,
                "error": median(errors) if errors else 0.0,
                "error_p90": errors[int(0.9 * (len(errors) - 1))] if errors else 0.0,
                "latency": statistics.geometric_mean(ratios) if ratios else None,
                "profile pairs at once": of["at_once"],
            }
        )
    return rows


def main(options: argparse.Namespace) -> int:
    started = time.time()
    networks = QUICK if options.quick else NETWORKS
    by_setup = {}
    with tempfile.TemporaryDirectory() as folder:
        for setup in SETUPS:
            by_setup[setup[0]] = tuned(Path(folder, setup[0]), networks, setup, options)
    rows = compared(by_setup)
    print("\ntime, shift, error of a program and delivered latency are over the first setup")
    common.table(rows, list(rows[0]))
    alone, again, shared, interleaved = rows
    noise = max(0.02, again["error"])
    checks = [
        common.at_least("programs that all setups measured", alone["programs"],
                        len(networks), "condition", any_size=True),
        common.at_least("shared: pairs of profile stages at once", shared["profile pairs at once"],
                        1, "condition", any_size=True),
        common.at_most("all others: pairs of profile stages at once",
                       sum(r["profile pairs at once"] for r in (alone, again, interleaved)),
                       0, "condition", any_size=True),
        common.at_most("interleaved: error, or that of dedicated again if more",
                       interleaved["error"], noise, "aim"),
        common.at_least("shared: error over that of interleaved",
                        shared["error"] / max(interleaved["error"], 1e-9), 1.0, "aim"),
        common.at_most("interleaved: time over dedicated", interleaved["time"], 1.0, "aim"),
    ]  # fmt: skip
    return common.finish(
        "table1", started, {"rows": rows, "networks": networks}, checks, options.json
    )


if __name__ == "__main__":
    made = common.parser("The thesis's Table 1: dedicated, shared and interleaved.")
    made.add_argument("--trials", type=int, default=64, help="of each network")
    made.add_argument("--host-core", type=int, default=0)
    made.add_argument("--device-core", type=int, default=1)
    common.run(main, made)
