"""Seeded mutations of small valid files, thousands of them.

A Python with the compiler takes seconds to start, so one process imports what the commands need,
and forks a child for each mutation, which calls the command line as `tunefleet` does. Networks are
imported in workers of the product's own fork server, as always; frameworks are loaded there before.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil

import common
import hostile_valid as valid
from hostile_case import LOG_LINE, MOST_MB, MOST_S, Place, World, faults_of_text, memory_mb
from hostile_changes import any_archive, any_bytes, any_header, any_json, any_lines

_MEASURED_S = 0.5
#: Seconds after which what was seen until then is written down.
_KEPT_S = 30.0
#: Codes of the tree of errors that an input may end with.
_CODES = frozenset({0, 2, 3, 6})

#: What the process that forks loads, besides TVM.
_LOADED = (
    "pyarrow.parquet", "lightgbm", "tunefleet.cli.summary", "tunefleet.costmodel.registry",
    "tunefleet.dataset.parquet", "tunefleet.dataset.codecs", "tunefleet.dataset.statistics",
    "tunefleet.artifacts.opening", "tunefleet.learning.evaluation", "tunefleet.runs.listing",
    "tunefleet.report.dataset_text", "tunefleet.store", "alembic.command",
)  # fmt: skip
#: What its fork server loads, besides TVM.
_LOADED_FOR_WORKERS = (
    "onnx", "onnxruntime", "torch", "tunefleet.compiler.frontends.onnx_network",
    "tunefleet.compiler.frontends.torch_import", "tunefleet.compiler.frontends.huggingface_",
    "tunefleet.artifacts.torch_file", "transformers.models.bert.modeling_bert", "keras",
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """Files of which one is changed, and the command that reads them. `share`: how many of its
    mutations are made for each of a format with 1; an import takes long. `valid`: the exit code for
    the files as they are."""

    name: str
    files: dict[str, bytes]
    changed: str
    command: tuple[str, ...]
    share: int = 1
    mutate: Callable[[bytes, random.Random], bytes] = any_bytes
    valid: int = 0


@dataclass
class Mutated:
    """What became of the mutations: by format the number of each exit code, and the failures."""

    codes: dict[str, Counter[int]]
    failures: list[str]
    longest_s: float = 0.0
    peak_mb: float = 0.0

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "codes": {name: dict(counted) for name, counted in self.codes.items()},
            "failures": self.failures,
            "longest_s": self.longest_s,
            "peak_mb": self.peak_mb,
        }

    @property
    def tried(self) -> int:
        return sum(sum(counted.values()) for counted in self.codes.values())

    def add(self, figures: dict[str, Any]) -> None:
        """What an earlier run saw."""
        for name, counted in figures.get("codes", {}).items():
            self.codes[name].update({int(code): count for code, count in counted.items()})
        self.failures += figures.get("failures", ())
        self.longest_s = max(self.longest_s, figures.get("longest_s", 0.0))
        self.peak_mb = max(self.peak_mb, figures.get("peak_mb", 0.0))

    def checks(self, wanted: int) -> list[common.Check]:
        bad = self.failures
        return [
            common.at_least("mutations", self.tried, wanted, "condition"),
            common.Check("mutations that ended otherwise than they may", "; ".join(bad[:20]),
                         "none", "condition", not bad),
            common.at_most("longest mutation, s", self.longest_s, MOST_S, "condition",
                           any_size=True),
            common.at_most("most memory of a worker, MB", self.peak_mb, MOST_MB, "condition",
                           any_size=True),
        ]  # fmt: skip


def formats(world: World) -> list[Format]:
    image = Place(world.folder, world).image()
    artifact = {
        str(path.relative_to(world.artifact)): path.read_bytes()
        for path in world.artifact.rglob("*")
        if path.is_file()
    }
    artifact[image] = (world.folder / image).read_bytes()
    run = ("run", ".", "--input", image)
    store = {"home/store.sqlite": (world.home / "store.sqlite").read_bytes()}
    folder = {f"network/{name}": content for name, content in valid.huggingface().items()}
    bert = ("tasks", "network", "--dim", "sequence=4")
    made: list[Format] = []

    def add(name: str, file: str, content: bytes, *command: str, **more: Any) -> None:
        made.append(Format(name, {file: content}, file, command, **more))

    networks = {"convolution": valid.convolution, "control": valid.control,
                "attention": valid.attention}  # fmt: skip
    for name, build in networks.items():
        add(f"ONNX, {name}", "n.onnx", build(), "tasks", "n.onnx", share=4)
    for free in (False, True):
        add(
            f".pt2{', free' if free else ''}",
            "n.pt2",
            valid.exported(free=free),
            "tasks",
            "n.pt2",
            *(["--dim", "x.0=4"] if free else []),
            share=2,
            mutate=any_archive,
        )
    add("TFLite", "n.tflite", valid.tflite(), "tasks", "n.tflite", share=4)
    add("Keras", "n.keras", valid.keras(world.folder), "tasks", "n.keras", mutate=any_archive)
    made.append(Format("config.json", folder, "network/config.json", bert, 1, any_json))
    made.append(Format("safetensors", folder, "network/model.safetensors", bert, 1, any_header))
    made.append(Format("artifact.json", artifact, "artifact.json", run, 4, any_json))
    made.append(Format("artifact.json, report", artifact, "artifact.json", ("report", "."), 4,
                       any_json))  # fmt: skip
    made += [Format(name, artifact, name, run, 2) for name in ("module.so", "module.safetensors")]
    made.append(Format("an array", artifact, image, run, 2))
    made.append(Format("store", store, "home/store.sqlite", ("jobs",), 6))
    add(
        "Parquet", "r.parquet", world.records.read_bytes(), "dataset", "stats", "r.parquet", share=6
    )
    add(
        "log",
        "r.json",
        LOG_LINE.encode() * 3,
        "dataset",
        "stats",
        "r.json",
        "--device",
        "v100",
        share=6,
        mutate=any_lines,
    )
    add(
        "cost model",
        "m.zip",
        world.cost_model.read_bytes(),
        "costmodel",
        "show",
        "m.zip",
        share=3,
        mutate=any_archive,
    )
    add(
        "cost model, tested",
        "m.zip",
        world.cost_model.read_bytes(),
        "costmodel",
        "evaluate",
        "m.zip",
        str(world.records),
        share=1,
        mutate=any_archive,
        valid=2,  # the records are of another tuner, which is told once the model is read
    )
    add(
        "device table",
        "d.toml",
        valid.DEVICES.encode(),
        "dataset",
        "devices",
        "--devices",
        "d.toml",
        share=4,
    )
    return made


@dataclass
class _Running:
    number: int
    format: Format
    folder: Path
    started: float


def mutate(
    count: int,
    jobs: int,
    seed: int,
    keep: Path | None,
    *,
    earlier: dict[str, Any] | None = None,
    figures: Path | None = None,
) -> Mutated:
    """Try mutations until there are so many; those that end otherwise than they may are kept in a
    folder. `earlier` are the figures of a run that was interrupted: this one goes on. `figures`:
    the file to which they are written now and then, should this run be killed."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        world = World(Path(name))
        all_formats = formats(world)
        os.environ["TMPDIR"] = tempfile.tempdir = str(world.scratch)
        _load()
        _check_valid(all_formats, world)
        # Each format comes as often as its share says, in an order that any count covers evenly.
        order = [f for f in all_formats for _ in range(f.share)]
        random.Random(seed).shuffle(order)
        found = Mutated({f.name: Counter() for f in all_formats}, [])
        found.add(earlier or {})
        running: dict[int, _Running] = {}
        measured, number, kept = 0.0, found.tried, time.monotonic()
        with contextlib.suppress(KeyboardInterrupt):
            while number < count or running:
                while number < count and len(running) < jobs:
                    each = _prepared(number, order[number % len(order)], seed, world)
                    running[_forked(each, world)] = each
                    number += 1
                if time.monotonic() - measured > _MEASURED_S:
                    measured = time.monotonic()
                    found.peak_mb = max(found.peak_mb, _largest_mb())
                if figures and time.monotonic() - kept > _KEPT_S:
                    kept = time.monotonic()
                    figures.write_text(
                        json.dumps({"figures": {"mutations": found.figures}}), encoding="utf-8"
                    )
                for pid in list(running):
                    status = _ended(pid, running[pid])
                    if status is not None:
                        _judge(running.pop(pid), status, found, keep)
                time.sleep(0.005)
        for pid in running:
            os.killpg(pid, signal.SIGKILL)
        return found


def _load() -> None:
    """Imports once what the commands need, and starts the fork server of the workers."""
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.workers._spawn import worker_context

    os.environ["KERAS_BACKEND"] = "torch"
    load_tvm()
    for module in _LOADED:
        importlib.import_module(module)
    worker_context()
    multiprocessing.set_forkserver_preload(["tunefleet.stages._preload", *_LOADED_FOR_WORKERS])
    server: Any = forkserver._forkserver
    server.ensure_running()
    # A child would ask whether its own child, which the server is not, still lives; the product
    # asks by the function of the module.
    server.ensure_running = forkserver.ensure_running = lambda: None
    # A fork copies this thread alone: what another holds would be held for ever.
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        print(f"note: {threads} threads before the first fork", file=sys.stderr)


def _check_valid(all_formats: list[Format], world: World) -> None:
    """Raises RuntimeError where the files that are to be changed are refused as they are: then no
    change would reach what reads them."""
    for form in all_formats:
        each = _prepared(-1, replace(form, mutate=lambda content, _: content), 0, world)
        pid = _forked(each, world)
        while (code := _ended(pid, each)) is None:
            time.sleep(0.01)
        told = (each.folder / ".stderr").read_text(errors="replace", encoding="utf-8")
        shutil.rmtree(each.folder)
        if code != form.valid:
            raise RuntimeError(f"{form.name}, unchanged, ends with {code}: {told[-500:]}")


def _prepared(number: int, form: Format, seed: int, world: World) -> _Running:
    folder = world.folder / f"mutation-{number}"
    chance = random.Random(f"{seed} {number}")
    for name, content in form.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(form.mutate(content, chance) if name == form.changed else content)
    return _Running(number, form, folder, time.monotonic())


def _forked(each: _Running, world: World) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        os.chdir(each.folder)
        os.environ |= world.environment(each.folder / "home")
        sys.argv = ["tunefleet", *each.format.command]
        for number, name in enumerate(("/dev/null", ".stdout", ".stderr")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
            os.dup2(os.open(name, flags, 0o600), number)
        from tunefleet.cli.app import run

        code = run(each.format.command)
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _ended(pid: int, each: _Running) -> int | None:
    """The exit code, or minus the signal, of a child that has ended, or that took too long."""
    if time.monotonic() - each.started > 2 * MOST_S:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return -signal.SIGKILL
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _largest_mb() -> float:
    """The most memory that a worker or a command has now."""
    return max((memory_mb([p]) for p in psutil.Process().children(recursive=True)), default=0)


def _judge(each: _Running, code: int, found: Mutated, keep: Path | None) -> None:
    seconds = time.monotonic() - each.started
    told, printed = (
        (each.folder / name).read_text(errors="replace", encoding="utf-8")
        for name in (".stderr", ".stdout")
    )
    faults = [] if code in _CODES else [f"exit {code}"]
    faults += faults_of_text(code, told, printed)
    if seconds > MOST_S:
        faults.append(f"{seconds:.0f} s")
    found.codes[each.format.name][code] += 1
    found.longest_s = max(found.longest_s, seconds)
    if faults:
        last = (told.strip().splitlines() or [""])[-1]
        text = f"{each.number} {each.format.name}: {', '.join(faults)}: {last[:300]}"
        found.failures.append(text)
        print(f"MISS mutation {text}", flush=True)
        if keep:
            shutil.copytree(each.folder, keep / str(each.number), dirs_exist_ok=True)
    shutil.rmtree(each.folder, ignore_errors=True)
