"""tunefleet on an NVIDIA GPU against PyTorch and stock MetaSchedule, in parts of a few minutes.

    python benchmarks/cuda_search.py --results docs/results/cuda --home gpu-home

Each part writes `RESULTS/PART.json`. The same command goes on with the parts that have none, in
this order, and begins none that would not end within `--minutes`; `--parts` names some of them.

    conformance     what every device does; random programs of every WMMA product and of the space
                    run on the GPU and compared with the task's own loops
    resnet18, mobilenet_v2, bert
                    two minutes of search, as many of stock's, PyTorch eager and
                    torch.compile; with `-fp16` float16 products, PyTorch in float16
    products-fp16   single products: 512x512x512 and those of BERT, against PyTorch's cuBLAS
    equal-trials    ResNet-18, as many trials for both sides
    records         1,500 programs by tensor cores, for cost models

`--emulated` is the dry run of the script on the emulated driver of the tests, with a small network
and few trials: it shows that every part runs, and none of its times says anything of a GPU. For a
bare machine without a network: `make gpu-wheels` elsewhere, and `benchmarks/cuda_setup.sh` there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))


@dataclass(frozen=True)
class Part:
    """`minutes` that it takes on a GPU, at most."""

    run: Callable[[Scale, Path], dict[str, Any]]
    minutes: float


@dataclass(frozen=True)
class Scale:
    """How much of everything a part does: on a GPU, or in a dry run."""

    minutes: float | None
    trials: int
    programs: int
    networks: dict[str, str]
    #: Parts with a search by stock, which takes minutes on an emulated GPU too.
    stock: tuple[str, ...]
    products: tuple[tuple[int, int, int], ...]
    records: int
    emulated: bool


WHOLE = Scale(
    minutes=2.0,
    trials=640,
    programs=200,
    networks={
        "resnet18": "zoo:resnet18",
        "mobilenet_v2": "zoo:mobilenet_v2",
        "bert": "zoo:bert_tiny",
    },
    stock=("resnet18", "mobilenet_v2", "bert"),
    products=((512, 512, 512), (128, 768, 768), (128, 3072, 768), (128, 768, 3072)),
    records=1500,
    emulated=False,
)
DRY = Scale(
    minutes=None,
    trials=12,
    programs=6,
    networks=dict.fromkeys(WHOLE.networks, "zoo:tiny_cnn"),
    stock=("resnet18",),
    products=((32, 32, 32),),
    records=4,
    emulated=True,
)


def parts() -> dict[str, Part]:
    """By name, in the order in which they are run."""
    import cuda_parts as made

    def network(name: str, precision: str) -> Callable[[Scale, Path], dict[str, Any]]:
        return lambda scale, home: made.network(scale, home, name, precision)

    return {
        "conformance": Part(made.conformance, 6),
        "resnet18": Part(network("resnet18", "float32"), 8),
        "resnet18-fp16": Part(network("resnet18", "fp16"), 8),
        "mobilenet_v2": Part(network("mobilenet_v2", "float32"), 8),
        "bert": Part(network("bert", "float32"), 8),
        "bert-fp16": Part(network("bert", "fp16"), 8),
        "products-fp16": Part(made.products, 6),
        "equal-trials": Part(made.equal_trials, 8),
        "records": Part(made.records, 8),
    }


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.emulated and "EMULATED_GPU_COUNT" not in os.environ:
        return _again_emulated(options.home)
    from tunefleet.hardware.gpu import gpus

    if not gpus():
        raise common.Skip("no NVIDIA GPU (--emulated for a dry run)")
    gpu = gpus()[0]
    scale = DRY if options.emulated else WHOLE
    options.results.mkdir(parents=True, exist_ok=True)
    checks, figures = [], dict[str, Any]()
    for name, part in parts().items():
        path = options.results / f"{name}.json"
        if options.parts and name not in options.parts:
            continue
        if not path.exists():
            spent = (time.time() - started) / 60
            if spent and spent + part.minutes > options.minutes and not options.emulated:
                print(f"{name}: not begun, {options.minutes - spent:.1f} minutes are left")
                continue
            began = time.time()
            print(f"== {name}", flush=True)
            found = part.run(scale, options.home)
            found |= {"gpu": gpu.to_json(), "seconds": round(time.time() - began, 1)}
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        figures[name] = json.loads(path.read_text(encoding="utf-8"))
        print(json.dumps(figures[name].get("summary", {}), indent=1), flush=True)
        checks += _checks(name, figures[name].get("summary", {}), scale)
    left = [name for name in parts() if not (options.results / f"{name}.json").exists()]
    print(f"left: {', '.join(left) or 'none'}")
    return common.finish("cuda_search", started, figures, checks, options.json)


def _checks(name: str, summary: dict[str, Any], scale: Scale) -> list[common.Check]:
    """Right or wrong; and how fast, which an emulated GPU does not say."""
    made = []
    sides: tuple[tuple[str, common.Kind], ...] = (
        ("stock", "condition"), ("eager", "condition"), ("compile", "aim"),
    )  # fmt: skip
    if "wrong" in summary:
        made.append(
            common.at_most(
                f"{name}: wrong programs", summary["wrong"], 0, "condition", any_size=True
            )
        )
    if scale.emulated:
        return made
    for side, kind in sides:
        if summary.get(side):
            made.append(common.at_most(f"{name}: time over {side}'s", summary[side], 1.0, kind))
    if "of_cublas" in summary:
        made.append(
            common.at_least(f"{name}: of cuBLAS's rate", summary["of_cublas"], 0.9, "condition")
        )
    return made


def _again_emulated(home: Path) -> int:
    """The same command in a process with the emulated driver."""
    from tests.emulation.environment import emulated_environment

    environment = emulated_environment(home.absolute() / "emulated")
    return subprocess.run([sys.executable, *sys.argv], env={**os.environ, **environment}).returncode


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--results", type=Path, default=Path("docs/results/cuda"))
    parser.add_argument(
        "--home", type=Path, default=Path("gpu-home"), help="jobs, records, modules"
    )
    parser.add_argument("--parts", nargs="+", help="only these; the default is all that are left")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin no part that ends later")
    parser.add_argument("--emulated", action="store_true", help="a dry run on the emulated driver")
    common.run(main, parser)
