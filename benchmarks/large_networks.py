"""Peak memory and seconds of tuning large networks, of all processes of the command together.

A network with random weights, a decoder as Llama's or a ViT-B/32, is written once to a cache
folder, as `.pt2` or as ONNX with external data, by a process of its own; `tunefleet tune` of it
runs as the user would run it. Memory is the proportional set size (PSS) of the command's whole
process tree: a page that several processes share counts once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import common

#: Samples of memory per second.
_RATE = 5.0
_GIB = 2**30
#: What the whole run may take beside three times the weights.
_BESIDE_BYTES = 2 * _GIB
_TIMES_WEIGHTS = 3.0
_TOLERANCE = 1e-3
_QUICK_MINUTES = 0.2
#: What the script `tunefleet` does.
_COMMAND = "from tunefleet.cli import main; main()"


@dataclass(frozen=True)
class Decoder:
    """A decoder's sizes; `layers` of them, all float32."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    tokens: int = 32
    vocabulary: int = 32000


DECODERS = {
    "60m": Decoder(512, 1408, 8, 8, 8),
    "350m": Decoder(1024, 2816, 24, 16, 16),
    "1100m": Decoder(2048, 5632, 22, 32, 4),
    # The widths of the largest in few layers: for a look at what does not depend on depth.
    "1100m-2": Decoder(2048, 5632, 2, 32, 4),
}
VIT = "vit-b32"
FORMS = ("pt2", "onnx")


def write(name: str, form: str, path: Path) -> None:
    """Make the network with seeded weights and export it to `path`."""
    import torch

    torch.manual_seed(0)
    module, example = _vit() if name == VIT else _decoder(DECODERS[name])
    with torch.no_grad():
        if form == "pt2":
            torch.export.save(torch.export.export(module.eval(), (example,)), path)
            return
        torch.onnx.export(
            module.eval(),
            (example,),
            str(path),
            input_names=["input"],
            dynamo=True,
            external_data=True,
            optimize=True,
            verbose=False,
        )


def _decoder(decoder: Decoder) -> tuple[Any, Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=decoder.vocabulary,
        hidden_size=decoder.hidden,
        intermediate_size=decoder.intermediate,
        num_hidden_layers=decoder.layers,
        num_attention_heads=decoder.heads,
        num_key_value_heads=decoder.kv_heads,
        tie_word_embeddings=False,
        use_cache=False,
    )
    tokens = torch.arange(decoder.tokens)[None] * 97 % decoder.vocabulary
    return LlamaForCausalLM(config), tokens


def _vit() -> tuple[Any, Any]:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(patch_size=32)), torch.randn(1, 3, 224, 224)


def written(name: str, form: str, cache: Path) -> Path:
    """The network's file; made by a child process unless it is there."""
    folder = cache / f"{name}-{form}"
    path = folder / f"network-{name}.{form}"
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=cache) as draft:
            command = [sys.executable, __file__, "--write", name, form, f"{draft}/{path.name}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            folder.mkdir(exist_ok=True)
            for file in Path(draft).iterdir():
                if file.name != path.name:
                    file.rename(folder / file.name)
            Path(draft, path.name).rename(path)
    return path


def weight_bytes(path: Path) -> int:
    """Bytes of a network's files: all but a few are weights."""
    return sum(file.stat().st_size for file in path.parent.iterdir())


@dataclass
class Watch:
    """Samples the memory of a process and of all that it started; ends the process when the
    machine runs short."""

    process: subprocess.Popen[str]
    free_gib: float
    samples: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    stopped: str = ""

    def run(self) -> None:
        """Returns when the process has ended."""
        pid, family, looked = self.process.pid, list[int](), 0.0
        while self.process.poll() is None:
            started = time.time()
            # To find the processes takes longer than to ask them.
            if started - looked > 1.0:
                family, looked = _started_by(pid), started
            self.samples.append((started, _used(pid, family)))
            if psutil.virtual_memory().available < self.free_gib * 2**30 and not self.stopped:
                self.stopped = f"less than {self.free_gib:g} GiB of the machine were left"
                self.process.terminate()
            time.sleep(max(0.0, 1 / _RATE - (time.time() - started)))

    def peak(self, start: float, end: float) -> dict[str, int]:
        """Bytes by process at the moment between two times when they were most."""
        within = [used for at, used in self.samples if start <= at <= end]
        return max(within, key=lambda used: sum(used.values()), default={})


def _used(pid: int, started: Iterable[int]) -> dict[str, int]:
    """Bytes of the process (`main`), and of those that it started by their ids."""
    used: dict[str, int] = {}
    for process in (pid, *started):
        name = "main" if process == pid else str(process)
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            used[name] = int(psutil.Process(process).memory_full_info().pss)
    return used


def _started_by(pid: int) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    return []


def tune(path: Path, home: Path, minutes: float, free_gib: float) -> dict[str, Any]:
    """Tune a file as a user would; what it took and what came of it."""
    result_path = home / "result.json"
    command = [sys.executable, "-c", _COMMAND, "tune", str(path), "--minutes", str(minutes)]
    command += ["--home", str(home), "--json", str(result_path), "--quiet"]
    started = time.time()
    with (home / "log").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)
        watch = Watch(process, free_gib)
        try:
            watch.run()
        finally:
            process.kill()
        log.seek(0)
        said = log.read()[-2000:]
    ended = time.time()
    (result,) = (
        json.loads(result_path.read_text(encoding="utf-8")) if result_path.is_file() else (None,)
    )
    steps = result["steps"] if result else []
    return {
        "exit_code": process.returncode,
        "stopped": watch.stopped,
        "said": said,
        "seconds": ended - started,
        "peak_bytes": sum(watch.peak(started, ended).values()),
        "peak_of": watch.peak(started, ended),
        "phases": _phases(steps, started, ended, watch),
        "result": result,
    }


def _phases(
    steps: list[dict[str, Any]], started: float, ended: float, watch: Watch
) -> list[dict[str, Any]]:
    """Seconds and peak of each step; what lies between import and delivery is the search."""
    spans: list[tuple[str, float, float]] = []
    before = ("start", started)
    for step in sorted(steps, key=lambda each: each["started_at"]):
        name = "search" if before[0] == "check" else "between"
        if step["started_at"] - before[1] > 1.0:
            spans.append((name if spans else "start", before[1], step["started_at"]))
        end = step["started_at"] + step["seconds"]
        spans.append((f"{step['step']} ({step['resource']})", step["started_at"], end))
        before = (step["step"], end)
    spans.append(("end", before[1], ended))
    found = []
    for name, start, end in spans:
        used = watch.peak(start, end)
        found.append(
            {
                "phase": name,
                "seconds": end - start,
                "peak_bytes": sum(used.values()),
                "main_bytes": used.get("main", 0),
            }
        )
    return found


def report(name: str, form: str, weights: int, run: dict[str, Any]) -> list[common.Check]:
    """Print what a run took; the checks it is held against."""
    result = run["result"] or {}
    allowed = _TIMES_WEIGHTS * weights + _BESIDE_BYTES
    print(f"\n{name} as {form}: {weights / _GIB:.2f} GiB of weights, {run['seconds']:.0f} s, peak "
          f"{run['peak_bytes'] / _GIB:.2f} of {allowed / _GIB:.2f} GiB; "
          f"{run['stopped'] or result.get('delivered') or run['said'][-300:]}, "
          f"{result.get('trials')} trials, difference {result.get('difference')}")  # fmt: skip
    rows = [
        {
            "phase": phase["phase"],
            "s": phase["seconds"],
            "peak GiB": phase["peak_bytes"] / _GIB,
            "of the main process": phase["main_bytes"] / _GIB,
        }
        for phase in run["phases"]
    ]
    common.table(rows, ["phase", "s", "peak GiB", "of the main process"])
    what = f"{name} as {form}"
    difference = (result.get("difference") or {}).get(result.get("delivered"))
    return [
        common.at_most(
            f"{what}: peak of all processes, GiB",
            run["peak_bytes"] / _GIB,
            allowed / _GIB,
            "condition",
            any_size=True,
        ),
        common.at_most(
            f"{what}: millionths of the largest output that it differs from its source",
            float("inf") if difference is None else difference * 1e6,
            _TOLERANCE * 1e6,
            "condition",
            any_size=True,
        ),
    ]


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.write:
        name, form, path = options.write
        write(name, form, Path(path))
        return 0
    options.cache.mkdir(parents=True, exist_ok=True)
    names = ["60m"] if options.quick else options.networks.split(",")
    minutes = _QUICK_MINUTES if options.quick else options.minutes
    figures: list[dict[str, Any]] = []
    checks: list[common.Check] = []
    for name in names:
        for form in options.forms.split(","):
            path = written(name, form, options.cache)
            weights = weight_bytes(path)
            with tempfile.TemporaryDirectory(dir=options.cache, prefix="home-") as home:
                run = tune(path, Path(home), minutes, options.keep_free)
            figures.append({"network": name, "form": form, "weights": weights, **run})
            checks += report(name, form, weights, run)
    return common.finish("large_networks", started, {"runs": figures}, checks, options.json)


if __name__ == "__main__":
    options = common.parser(__doc__ or "")
    options.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "large-networks"
    )
    known = ", ".join((*DECODERS, VIT))
    options.add_argument("--networks", default=f"{VIT},350m,1100m", help=f"of {known}")
    options.add_argument("--forms", default=",".join(FORMS))
    options.add_argument("--minutes", type=float, default=5.0)
    options.add_argument("--keep-free", type=float, default=2.0, help="GiB: ends a run below it")
    options.add_argument("--write", nargs=3, metavar=("NETWORK", "FORM", "PATH"))
    common.run(main, options)
