"""kill -9 at random moments, then the same command again, until the job ends by itself.

The job is `tunefleet tune zoo:tiny_cnn --trials N` as a user calls it; each process is killed
after a random time, workers and all. At the end the store must hold exactly N trials, each of
another program of its task, and every stage once.

    .venv/bin/python benchmarks/kill_resume.py --json out.json
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common


def main(options: argparse.Namespace) -> int:
    started = time.time()
    kills, trials = (3, 30) if options.quick else (options.kills, options.trials)
    generator = random.Random(options.seed)
    command = [str(Path(sys.executable).parent / "tunefleet"), "tune", "zoo:tiny_cnn",
               "--trials", str(trials), "--batch", "8", "--first-batch", "8"]  # fmt: skip
    moments: list[float] = []
    seen: list[int] = []
    done = False
    with tempfile.TemporaryDirectory() as home:
        command += ["--home", home]
        while len(moments) < kills:
            moment = generator.uniform(options.shortest_s, options.longest_s)
            with subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as job:
                try:
                    job.wait(moment)
                    done = True  # before it could be killed
                except subprocess.TimeoutExpired:
                    job.kill()
                    moments.append(moment)
            seen.append(_count(Path(home)))
            if done:
                break
            print(f"kill {len(moments):2} after {moment:4.1f} s: {seen[-1]} trials", flush=True)
        if not done:
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        final = _examine(Path(home))
    rows = {"kills": len(moments), **final}
    common.table([rows], list(rows))
    checks = [
        common.at_least("kills", len(moments), kills, "condition"),
        common.Check("trials", final["trials"], f"== {trials}", "condition",
                     final["trials"] == trials),
        common.at_most("programs measured twice", final["repeated"], 0, "condition"),
        common.at_most("stages committed twice", final["stages_repeated"], 0, "condition"),
        common.Check("trials never go back", str(seen), "ascending", "condition",
                     seen == sorted(seen)),
    ]  # fmt: skip
    figures = {"moments_s": moments, "trials_after_each_kill": seen, **final}
    return common.finish("kill_resume", started, figures, checks, options.json)


def _count(home: Path) -> int:
    from tunefleet.store import open_store

    store = open_store(home)
    try:
        return sum(len(store.trials(job.job_id)) for job in store.jobs())
    finally:
        store.close()


def _examine(home: Path) -> dict[str, int]:
    from tunefleet.store import open_store

    store = open_store(home)
    try:
        jobs = store.jobs()
        trials = [
            (weighted.task.task_id, trial.candidate.candidate_id)
            for job in jobs
            for weighted in store.tasks(job.job_id)
            for trial in store.trials(job.job_id, weighted.task.task_id)
        ]
        keys = [run.key for job in jobs for run in store.stages(job.job_id)]
        return {
            "jobs": len(jobs),
            "trials": len(trials),
            "repeated": len(trials) - len(set(trials)),
            "stages": len(keys),
            "stages_repeated": len(keys) - len(set(keys)),
        }
    finally:
        store.close()


if __name__ == "__main__":
    made = common.parser("kill -9 and resume.")
    made.add_argument("--kills", type=int, default=20)
    made.add_argument("--trials", type=int, default=1200)
    # Importing and checking take some seconds; kills should fall within the search as well.
    made.add_argument("--shortest-s", type=float, default=5.0)
    made.add_argument("--longest-s", type=float, default=17.0)
    made.add_argument("--seed", type=int, default=1)
    common.run(main, made)
