"""Bugs of every kind at random places of the package: none ends as success or as another's fault.

Traces which functions run, in all processes and threads, as networks of three kinds are tuned, the
zoo's also in a home with records. Then draws functions and kinds of errors by the seed that it
prints, has each function raise its error in a copy of the package, and runs the same command: it
must end within a minute by exit code 70 and one line, publish nothing and blame no candidate.

    .venv/bin/python benchmarks/mistakes.py --places 60 --seed 1
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import common
from mistakes_bugs import BUGS, Ended, faults_of, run, with_bug
from mistakes_places import Place, places_of

#: Seconds in which a command must have ended, and after which it is killed.
_MOST_S, _LIMIT_S = 60.0, 120.0
_PLACES, _QUICK = 60, 10
_TUNE = ("--trials", "8", "--threads", "1", "--quiet")
#: Of the places, at least so many that are run so; the rest are any.
_ROLES = {"initialiser": 2, "callback": 6, "worker": 15, "thread": 15, "command": 8}


@dataclass(frozen=True, slots=True)
class Scene:
    """A command, the home that it begins with (None: an empty one), and what it runs."""

    name: str
    command: tuple[str, ...]
    home: Path | None
    places: list[Place]

    def publishes_after(self, place: Place) -> bool:
        """Whether the artifact is written after the place has run."""
        names = [each.name for each in self.places]
        return self.places.index(place) <= names.index("write_artifact")


@dataclass(frozen=True, slots=True)
class Row:
    place: Place
    bug: str
    scene: str
    seconds: float
    code: int
    faults: list[str]
    said: str


def main(options: argparse.Namespace) -> int:
    started = time.time()
    count = options.places or (_QUICK if options.quick else _PLACES)
    print(f"seed {options.seed}: {count} places", flush=True)
    with tempfile.TemporaryDirectory(prefix="mistakes-") as name:
        folder = Path(name)
        scenes = _scenes(folder, options.quick)
        rows = [
            _tried(scene, place, bug, folder)
            for scene, place, bug in _drawn(scenes, count, random.Random(options.seed))
        ]
    wrong = [row for row in rows if row.faults]
    longest = max(row.seconds for row in rows)
    functions = {(p.file, p.line) for scene in scenes for p in scene.places}
    figures = {
        "seed": options.seed,
        "functions that run": len(functions),
        "roles": dict(Counter(row.place.role for row in rows)),
        "rows": [asdict(row) for row in rows],
    }
    checks = [
        common.at_most("bugs that ended otherwise than as ours", len(wrong), 0, "condition"),
        common.at_most("longest, s", longest, _MOST_S, "condition"),
    ]
    if not options.quick:
        checks.append(common.at_least("places", len(rows), _PLACES, "condition"))
    return common.finish("mistakes", started, figures, checks, options.json)


def _scenes(folder: Path, quick: bool) -> list[Scene]:
    scenes = []
    networks = {"zoo": "zoo:tiny_cnn", "onnx": _onnx(folder), "pt2": _pt2(folder)}
    for name, network in list(networks.items())[: 1 if quick else None]:
        home = folder / f"home-{name}"
        command: tuple[str, ...] = ("tune", network, *_TUNE)
        places = places_of(home, command, folder / f"trace-{name}")
        scenes.append(Scene(name, command, None, places))
    tuned, again = folder / "home-zoo", folder / "home-again"
    shutil.copytree(tuned, again)
    command = ("tune", "zoo:tiny_cnn", *_TUNE, "--seed", "7")
    places = places_of(again, command, folder / "trace-again")
    scenes.append(Scene("zoo, with records", command, tuned, places))
    for scene in scenes:
        print(f"{scene.name}: {len(scene.places)} functions run", flush=True)
    return scenes


def _drawn(
    scenes: Sequence[Scene], count: int, draw: random.Random
) -> list[tuple[Scene, Place, str]]:
    """Places, none twice, with the command that meets it and the kind of the bug."""
    pairs = [(scene, place) for scene in scenes for place in scene.places]
    draw.shuffle(pairs)
    chosen: dict[tuple[str, int], tuple[Scene, Place]] = {}
    for role, least in _ROLES.items():
        of_role = [pair for pair in pairs if pair[1].role == role]
        wanted = round(least * count / _PLACES) or 1
        for scene, place in of_role[:wanted]:
            chosen.setdefault((place.file, place.line), (scene, place))
    for scene, place in pairs:
        if len(chosen) >= count:
            break
        chosen.setdefault((place.file, place.line), (scene, place))
    return [(scene, place, draw.choice(list(BUGS))) for scene, place in chosen.values()]


def _tried(scene: Scene, place: Place, bug: str, folder: Path) -> Row:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        source, home = Path(name, "source"), Path(name, "home")
        with_bug(source, place.file, place.name, BUGS[bug], place.line)
        if scene.home is not None:
            shutil.copytree(scene.home, home)
        before = _artifacts(home)
        ended = run(source, home, scene.command, _LIMIT_S)
        faults = faults_of(ended, _MOST_S)
        if scene.publishes_after(place) and _artifacts(home) != before:
            faults.append("an artifact")
        faults += [f"a candidate blamed: {text}" for text in _blamed(home)]
    row = Row(place, bug, scene.name, ended.seconds, ended.code, faults, _last(ended))
    mark = f"MISS {'; '.join(faults)}" if faults else "ok  "
    where = f"{place.file}:{place.line} {place.name} ({place.role})"
    print(f"{mark} {scene.name}: {where}: {bug}: {row.seconds:.1f} s: {row.said}", flush=True)
    return row


def _artifacts(home: Path) -> set[str]:
    from tunefleet.core.home import Home

    folder = Home(home).artifacts
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _blamed(home: Path) -> list[str]:
    """Texts of failed trials: those of the networks here all run."""
    from tunefleet.core.home import Home
    from tunefleet.core.trial import Failure
    from tunefleet.store import open_store

    if not Home(home).store.is_file():
        return []
    store = open_store(home)
    try:
        trials = [trial for job in store.jobs.page() for trial in store.records.trials(job.job_id)]
    finally:
        store.close()
    return [trial.outcome.text for trial in trials if isinstance(trial.outcome, Failure)][:1]


def _last(ended: Ended) -> str:
    lines = ended.said.strip().splitlines()
    return lines[-1][:160] if lines else ""


def _onnx(folder: Path) -> str:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    path = folder / "small.onnx"
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Gelu", ["c"], ["g"]),
        helper.make_node("ReduceMean", ["g", "axes"], ["y"], keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])
    axes = numpy_helper.from_array(np.array([2, 3], np.int64), "axes")
    constants = [numpy_helper.from_array(weights, "w"), axes]
    graph = helper.make_graph(nodes, "small", [x], [y], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return str(path)


def _pt2(folder: Path) -> str:
    import torch

    path = folder / "small.pt2"
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    torch.export.save(torch.export.export(module.eval(), (torch.ones(4, 32),)), path)
    return str(path)


if __name__ == "__main__":
    options = common.parser(__doc__.splitlines()[0])
    options.add_argument("--places", type=int, help=f"how many; {_PLACES}, {_QUICK} with --quick")
    options.add_argument("--seed", type=int, default=1)
    common.run(main, options)
