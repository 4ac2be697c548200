"""Two commands of two terminals in one home: do they measure beside each other?

The same search runs alone, alone again, and together with another one that has the same cores, in
turn. It selects at random, by its seed, so that all of them measure the same programs. A program's
figure in a mode is the median of the rounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import common
from tunefleet.core.statistics import median

#: Seeds of the search that is compared, and of the one beside it.
SEED, OTHER = 1, 2
MODES = ("alone", "again", "together")


def compared(options: argparse.Namespace) -> tuple[dict[str, Any], list[common.Check]]:
    """The figures, and what is checked of them."""
    network, trials, rounds = (
        ("zoo:tiny_cnn", 24, 1) if options.quick else ("zoo:squeezenet", 96, options.command_rounds)
    )

    def command(home: Path, seed: int) -> subprocess.Popen[str]:
        of_search = f"--cost-model random --pretrained none --no-transfer --seed {seed} --batch 8"
        cores = f"--threads 1 --host-cores {options.host_core} --device-cores {options.device_core}"
        asked = f"tune {network} --trials {trials} {of_search} {cores} --quiet --home {home}"
        return subprocess.Popen(
            [sys.executable, "-m", "tunefleet", *asked.split()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    of_rounds: dict[str, list[dict[tuple[str, str], float]]] = {mode: [] for mode in MODES}
    profiles = any_stage = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for mode in MODES[number % len(MODES) :] + MODES[: number % len(MODES)]:
                home = Path(folder, f"{mode}{number}")
                seeds = (SEED, OTHER) if mode == "together" else (SEED,)
                commands = [command(home, seed) for seed in seeds]
                for each in commands:
                    errors = each.communicate()[1]
                    if each.returncode:
                        raise SystemExit(f"{mode}: {errors}")
                of_rounds[mode].append(measured(home, SEED))
                print(f"{mode}: {len(of_rounds[mode][-1])} programs measured", flush=True)
                if mode == "together":
                    beside = overlaps(home)
                    profiles, any_stage = profiles + beside[0], any_stage + beside[1]
    same = set.intersection(*(set(found) for of in of_rounds.values() for found in of))
    latencies = {
        mode: {key: median([found[key] for found in of]) for key in same}
        for mode, of in of_rounds.items()
    }
    shifts = {
        mode: sorted(abs(latencies[mode][key] / latencies["alone"][key] - 1) for key in same)
        for mode in ("again", "together")
    }
    medians = {mode: of[len(of) // 2] if of else 0.0 for mode, of in shifts.items()}
    figures = {
        "network": network, "trials": trials, "rounds": rounds, "programs_of_all_three": len(same),
        "profile_stages_beside_each_other": profiles,
        "profile_stages_beside_any_stage": any_stage,
        "again_shift": medians["again"], "together_shift": medians["together"],
    }  # fmt: skip
    common.table([figures], list(figures))
    noise = max(0.02, medians["again"])
    checks = [
        common.at_least("two commands: programs that all three runs measured",
                        len(same), trials // 4, "condition"),
        common.at_most("two commands: profile stages beside each other",
                       profiles, 0, "condition", any_size=True),
        common.at_most("two commands: shift of latencies, or of alone against alone if more",
                       medians["together"], noise, "aim"),
    ]  # fmt: skip
    return figures, checks


def measured(home: Path, seed: int) -> dict[tuple[str, str], float]:
    """The latency of each program that the search of a seed measured, in seconds."""
    from tunefleet.store import open_store

    with closing(open_store(home)) as store:
        [job] = [j for j in store.jobs.page() if j.spec.settings.search.seed == seed]
        return {
            (weighted.task.task_id, trial.candidate.candidate_id): trial.latency_s
            for weighted in store.work.tasks(job.job_id)
            for trial in store.records.trials(job.job_id, weighted.task.task_id)
            if trial.latency_s is not None
        }


def overlaps(home: Path) -> tuple[int, int]:
    """How many pairs of profile stages of different jobs ran at once, and how many profile stages
    with any stage of another job."""
    from tunefleet.core.stage import StageKind
    from tunefleet.store import open_store

    with closing(open_store(home)) as store:
        spans = store.work.stages_between(0.0, 1e12)
    pairs = [
        (one, other)
        for number, one in enumerate(spans)
        for other in spans[number + 1 :]
        if one.key.job_id != other.key.job_id
        and one.started_at < other.ended_at
        and other.started_at < one.ended_at
        and StageKind.PROFILE in (one.key.kind, other.key.kind)
    ]
    return sum(one.key.kind is other.key.kind for one, other in pairs), len(pairs)
