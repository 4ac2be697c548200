"""`tunefleet tune` killed in every phase: nothing lost, nothing twice, nothing left behind.

Small jobs of one network and of two at once, one after the other in one home. Each process gets
SIGKILL, SIGTERM, SIGHUP or SIGINT (these two also to the whole group, as terminals send them) at a
random moment of the whole command, or of the phase that was hit least; then the same command is
given again, until it ends by itself. Store, temporary folder, artifacts and processes are looked at
each time. As many kills again are of the server of a home, while three clients watch each of its
jobs (`kill_server.py`); `--kills` counts both, `--of-server` those of the server alone.

    .venv/bin/python benchmarks/kill_resume.py --kills 200 --json out.json
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import common
from kill_plan import Draw, Plan
from kill_server import ServerKills, kill_servers
from killing import PHASES, Command

#: Seconds that a command may take to end after a signal, and its workers after it.
LIMIT_S = 5.0
#: Seconds after which a command hangs.
HANG_S = 600.0

#: What must not happen.
FAULTS = (
    "a store is damaged",
    "trials are lost",
    "a program is measured twice",
    "a stage is committed twice",
    "an import or a delivery that had ended is done again",
    "a job is begun twice or not continued",
    "an exit code is wrong",
    "the last line does not say what happened",
    "a process is left after 5 s",
    "a temporary folder is left",
    "a draft is left",
    "an object is left",
    "a command fails or hangs that nobody killed",
    "a job does not end with its trials",
    "an artifact is missing, doubled or broken",
)


@dataclass(frozen=True)
class Contents:
    """A job in the store."""

    state: str
    trials: int
    programs: int
    stages: int
    keys: int
    artifact: str | None
    #: When each step of the network began that is committed.
    steps: dict[str, float]


@dataclass
class Trial:
    """The home in which all happens, and what was seen there."""

    home: Path
    temporary: Path
    options: list[str]
    trials: int
    kills: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in FAULTS})
    jobs: dict[str, Contents] = field(default_factory=dict)

    def fault(self, name: str, text: str) -> None:
        self.faults[name].append(text)
        print(f"  FAULT {name}: {text}", flush=True)

    def command(self, networks: list[str]) -> Command:
        return Command(networks, self.options, self.home, self.temporary)

    # What is seen each time

    def look(self, what: str) -> None:
        """Compare the store with what it was."""
        file = self.home / "store.sqlite"
        if not file.exists():
            if self.jobs:
                self.fault("a store is damaged", f"{what}: it is gone")
            return
        connection = sqlite3.connect(file)
        told = connection.execute("PRAGMA integrity_check").fetchall()
        connection.close()
        if told != [("ok",)]:
            self.fault("a store is damaged", f"{what}: {told}")
        found = _contents(self.home)
        for job_id, before in self.jobs.items():
            if job_id not in found or found[job_id].trials < before.trials:
                self.fault("trials are lost", f"{what}: {before} became {found.get(job_id)}")
            again = [
                step
                for step, began in before.steps.items()
                if job_id in found and found[job_id].steps.get(step, began) != began
            ]
            if again:
                text = f"{what}: job {job_id}: {again}"
                self.fault("an import or a delivery that had ended is done again", text)
        for job_id, job in found.items():
            if job.programs != job.trials:
                self.fault("a program is measured twice", f"{what}: job {job_id}, {job}")
            if job.keys != job.stages:
                self.fault("a stage is committed twice", f"{what}: job {job_id}, {job}")
        self.jobs = found

    def look_at_jobs(self, command: Command, known: set[str], before: set[str], what: str) -> None:
        """`known`: jobs of earlier commands; `before`: those that the process found begun."""
        own = self.jobs.keys() - known
        again = [start for start, resumed in command.resumed.items()
                 if not resumed and any(job.startswith(start) for job in before)]  # fmt: skip
        silent = [start for start, resumed in command.resumed.items()
                  if resumed and not any(job.startswith(start) for job in before)]  # fmt: skip
        if again or silent or len(own) > len(command.networks):
            text = f"{what}: jobs {sorted(own)}, begun {sorted(before)}, said {command.resumed}"
            self.fault("a job is begun twice or not continued", text)

    def scratch(self) -> set[str]:
        return {path.name for path in self.temporary.glob("tunefleet-*")}

    def drafts(self) -> set[str]:
        found = self.home.rglob("*draft*")
        return {str(path.relative_to(self.home)) for path in found}

    def objects(self) -> list[str]:
        """What lies below the objects: nothing, once no job goes on."""
        objects = self.home / "objects"
        return sorted(str(path.relative_to(objects)) for path in objects.rglob("*"))

    def look_for_leftovers(self, what: str, scratch: set[str], drafts: set[str]) -> None:
        """What lies there now, but for what lay there before."""
        for name in self.scratch() - scratch:
            self.fault("a temporary folder is left", f"{what}: {name}")
        for name in self.drafts() - drafts:
            self.fault("a draft is left", f"{what}: {name}")

    # What is done

    def undisturbed(self, networks: list[str]) -> dict[str, float]:
        """Seconds of each phase of a command that nobody kills, the longest of its networks'."""
        command, end = self.finish(networks, set(self.jobs))
        lengths: dict[str, float] = defaultdict(float)
        for began in command.began.values():
            ends = [*list(began.values())[1:], end]
            for (phase, start), until in zip(began.items(), ends, strict=True):
                lengths[phase] = max(lengths[phase], until - start)
        return lengths | {"all": end - command.started}

    def finish(self, networks: list[str], known: set[str]) -> tuple[Command, float]:
        """A command that nobody kills, and when it ended."""
        with closing(self.command(networks)) as command:
            command.watch(lambda: False, HANG_S)
            end = time.monotonic()
            self.ended(command, known)
        return command, end

    def ended(self, command: Command, known: set[str]) -> None:
        """Look at what a command delivered that ended by itself."""
        what = f"end of {' '.join(command.networks)}"
        code = command.end(timeout_s=1.0)
        left = _gone(command)[1]
        self.look(what)
        if code != 0:
            last = command.lines[-1] if command.lines else "nothing"
            text = f"{what}: exit code {code}, said: {last}"
            self.fault("a command fails or hangs that nobody killed", text)
            return
        if left:
            self.fault("a process is left after 5 s", f"{what}: {left}")
        self.look_for_leftovers(what, set(), set())
        for path in self.objects():
            self.fault("an object is left", f"{what}: {path}")
        own = {job_id: job for job_id, job in self.jobs.items() if job_id not in known}
        if len(own) != len(command.networks):
            text = f"{what}: {sorted(own)} of {command.networks}"
            self.fault("a job is begun twice or not continued", text)
        for job_id, job in own.items():
            if job.trials != self.trials or job.state != "succeeded":
                text = f"{what}: job {job_id}, {job}"
                self.fault("a job does not end with its trials", text)
        self._look_at_artifacts(set(own), what)

    def _look_at_artifacts(self, own: set[str], what: str) -> None:
        """Every job has one artifact, which runs."""
        told = {job.artifact for job in self.jobs.values()}
        found = {str(path) for path in (self.home / "artifacts").iterdir()}
        for path in found ^ told:
            which = "nobody's" if path in found else "missing"
            self.fault("an artifact is missing, doubled or broken", f"{what}: {which}: {path}")
        for path in {self.jobs[job].artifact for job in own} & found:
            try:
                _run(str(path))
            except Exception as error:
                text = f"{what}: {path}: {error}"
                self.fault("an artifact is missing, doubled or broken", text)

    def kill(self, networks: list[str], known: set[str], plan: Plan) -> bool:
        """Start the command and kill it; False when its jobs had ended before."""
        with closing(self.command(networks)) as command:
            return self._kill(command, known, plan)

    def _kill(self, command: Command, known: set[str], plan: Plan) -> bool:
        before, scratch, drafts = self.jobs, self.scratch(), self.drafts()
        if not command.watch(plan.due(command), HANG_S):
            self.ended(command, known)
            return False
        phases, blow = dict(command.phase), plan.blow
        after_s = time.monotonic() - command.started
        struck = time.monotonic()
        guarded = command.strike(blow)
        code = command.end(timeout_s=60.0)
        ended_s = time.monotonic() - struck
        if code == 0:  # it was about to end
            self.ended(command, known)
            return False
        gone_s, left = _gone(command)
        what = f"kill {len(self.kills) + 1}, {blow} in {'/'.join(phases.values())}"
        if left:
            self.fault("a process is left after 5 s", f"{what}: {left}")
        command.read()
        if code != 128 + blow.number:
            self.fault("an exit code is wrong", f"{what}: {code}")
        last = command.lines[-1] if command.lines else ""
        traceback = any(line.startswith("Traceback") for line in command.lines)
        if blow.polite and guarded and (traceback or not last.startswith("stopped")):
            self.fault("the last line does not say what happened", f"{what}: {command.lines}")
        if blow.polite:
            self.look_for_leftovers(what, scratch, drafts)
        self.look(what)
        self.look_at_jobs(command, known, set(before), what)
        own = [job for job_id, job in self.jobs.items() if job_id not in known]
        # All its jobs had ended before the signal: the same command starts new ones.
        ended = len(own) == len(command.networks) and {job.state for job in own} == {"succeeded"}
        self.kills.append({
            "networks": command.networks,
            "signal": str(blow),
            "polite": blow.polite,
            "phases": list(phases.values()),
            "after_s": after_s,
            "guarded": guarded,
            "exit_code": code,
            "ended_s": ended_s,
            "ended_cpu_s": command.ending_cpu_s,
            "gone_s": ended_s + gone_s,
            "trials": [job.trials for job in own],
            "said": last,
        })  # fmt: skip
        print(f"{what} after {after_s:.1f} s: exit code {code} in {ended_s:.2f} s "
              f"({command.ending_cpu_s:.2f} s of processor), "
              f"{sum(job.trials for job in own)} trials", flush=True)  # fmt: skip
        return not ended


def _gone(command: Command) -> tuple[float, list[int]]:
    """Seconds until none of its processes lives, and those that live after the limit."""
    started = time.monotonic()
    while (left := command.left()) and time.monotonic() - started < LIMIT_S:
        time.sleep(0.02)
    return time.monotonic() - started, left


def _contents(home: Path) -> dict[str, Contents]:
    from tunefleet.store import each_job, open_store

    store = open_store(home)
    found = {}
    try:
        for job in each_job(store.jobs):
            programs = [
                (weighted.task.task_id, trial.candidate.candidate_id)
                for weighted in store.work.tasks(job.job_id)
                for trial in store.records.trials(job.job_id, weighted.task.task_id)
            ]
            keys = [run.key for run in store.work.stages(job.job_id)]
            found[job.job_id] = Contents(
                state=str(job.state),
                trials=len(store.records.trials(job.job_id)),
                programs=len(set(programs)),
                stages=len(keys),
                keys=len(set(keys)),
                artifact=(store.jobs.summary(job.job_id) or {}).get("artifact"),
                steps={
                    str(run.key.kind): run.started_at
                    for owner in (job.job_id, job.spec.preparation.id)
                    for run in store.work.steps(owner)
                },
            )
    finally:
        store.close()
    return found


def _run(artifact: str) -> None:
    """Call an artifact once; raises where its outputs are not what it promises."""
    import tunefleet

    with tunefleet.load(artifact) as module:
        signature = module.signatures[0]
        outputs = module.run([np.zeros(t.shape, t.dtype) for t in signature.inputs])
    expected = [t.shape for t in signature.outputs]
    found = [output.shape for output in outputs]
    if found != expected or not all(np.isfinite(output).all() for output in outputs):
        raise ValueError(f"outputs of shapes {found} instead of {expected}, or not finite")


def _commands() -> Iterator[list[str]]:
    """One network, two, one, two, ...: none of them given before."""
    sizes = count(16)
    while True:
        yield [f"zoo:tiny_cnn?size={next(sizes)}"]
        yield [f"zoo:tiny_cnn?size={next(sizes)}" for _ in range(2)]


def main(options: argparse.Namespace) -> int:
    started = time.time()
    half = options.kills // 2 if options.of_server is None else options.of_server
    kills = 3 if options.quick else options.kills - half
    of_server = 1 if options.quick else half
    # Where this was started in the background or under nohup, the commands would ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    with tempfile.TemporaryDirectory() as folder:
        home, temporary = Path(folder, "home"), Path(folder, "tmp")
        home.mkdir()
        temporary.mkdir()
        chosen = ["--threads", "1", "--trials", str(options.trials), "--batch", "8",
                  "--first-batch", "8"]  # fmt: skip
        trial = Trial(home, temporary, chosen, options.trials)
        commands = _commands()
        lengths = {n: trial.undisturbed(next(commands)) for n in (1, 2)}
        draw = Draw(options.seed, lengths)
        with suppress(KeyboardInterrupt):  # tells what it has
            while len(trial.kills) < kills:
                networks, known, ended = next(commands), set(trial.jobs), False
                while not ended and len(trial.kills) < kills:
                    ended = not trial.kill(networks, known, draw.plan(trial.kills, len(networks)))
                if not ended:
                    trial.finish(networks, known)
        alone = (network for networks in commands for network in networks)
        served = kill_servers(home, temporary, chosen, of_server, options.seed, alone, trial.look)
        trial.look("the end")
        for job_id, job in trial.jobs.items():
            if job.trials != trial.trials or job.state != "succeeded":
                trial.fault("a job does not end with its trials", f"job {job_id}, {job}")
    return _report(options, started, trial, lengths, served)


def _report(
    options: argparse.Namespace,
    started: float,
    trial: Trial,
    lengths: dict[int, dict[str, float]],
    served: ServerKills,
) -> int:
    kinds = sorted({kill["signal"] for kill in trial.kills})
    rows = []
    for phase in PHASES:
        hits = [kill for kill in trial.kills if phase in kill["phases"]]
        row: dict[str, Any] = {"phase": phase}
        for number in (1, 2):
            row[f"{number} network{'s' * (number > 1)}"] = sum(
                len(kill["networks"]) == number for kill in hits
            )
        rows.append(row | {kind: sum(kill["signal"] == kind for kill in hits) for kind in kinds})
    common.table(rows, list(rows[0]))
    ended = [kill["ended_s"] for kill in trial.kills if kill["polite"]]
    cpu = [kill["ended_cpu_s"] for kill in trial.kills if kill["polite"]]
    gone = [kill["gone_s"] for kill in trial.kills]
    figures = {
        "kills": len(trial.kills),
        "by_signal": {kind: sum(kill["signal"] == kind for kill in trial.kills) for kind in kinds},
        "by_phase": rows,
        "jobs": len(trial.jobs),
        "trials": sum(job.trials for job in trial.jobs.values()),
        "stages": sum(job.stages for job in trial.jobs.values()),
        "undisturbed_s": lengths,
        "seconds_to_end": {"median": statistics.median(ended), "most": max(ended)} if ended else {},
        "processor_seconds_to_end": {"median": statistics.median(cpu), "most": max(cpu)}
        if cpu
        else {},
        "seconds_to_no_process": {"median": statistics.median(gone), "most": max(gone)},
        "faults": trial.faults,
        "each": trial.kills,
        "server": asdict(served),
    }
    print(f"\n{len(trial.jobs)} jobs, {figures['trials']} trials, {figures['stages']} stages; "
          f"ended after {figures['seconds_to_end']}, no process after "
          f"{figures['seconds_to_no_process']}")  # fmt: skip
    checks = [
        common.at_least("kills", len(trial.kills) + len(served.blows),
                        4 if options.quick else options.kills, "condition", any_size=True),
        *(common.at_most(name, len(texts), 0, "condition", any_size=True)
          for name, texts in served.faults.items()),
        *(common.at_most(name, len(texts), 0, "condition", any_size=True)
          for name, texts in trial.faults.items()),
        common.at_most("seconds to end after a signal", max(ended, default=0.0), LIMIT_S,
                       "condition", any_size=True),
    ]  # fmt: skip
    if not options.quick:
        least = min(min(row["1 network"], row["2 networks"]) for row in rows)
        checks.append(common.at_least("kills of the phase hit least", least, 1, "aim"))
    return common.finish("kill_resume", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Signals at random moments, and the same command again.")
    made.add_argument("--kills", type=int, default=40)
    made.add_argument("--of-server", type=int, help="kills of the server, by default half")
    made.add_argument("--trials", type=int, default=24)
    made.add_argument("--seed", type=int, default=1)
    common.run(main, made)
