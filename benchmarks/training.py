"""How long the attention model learns on the CPU and on a GPU, and whether it learns as much.

    .venv/bin/python benchmarks/training.py [RECORDS ...] --json out.json

The same records, split and seeds on each side, in turn: wall seconds of training, the split and the
features beside it not counted, and what the model knows of programs of the same tasks that it has
not seen. On either side predictions are NumPy's, on the CPU. Without a GPU that PyTorch can use,
the CPU alone. What the first work on a GPU costs (its libraries are loaded) is told by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import common
from tunefleet.costmodel import AttentionModel, has_cuda, metrics
from tunefleet.dataset.division import Division, Shares
from tunefleet.dataset.splits import divide
from tunefleet.features import tilings
from tunefleet.learning import inputs, records
from tunefleet.learning.training import DEVICES

DATASETS = Path(__file__).resolve().parents[1] / "datasets"
COLUMNS = ["device", "seed", "train_s", "epochs", "top1", "top5", "pca", "rmse"]


def main(options: argparse.Namespace) -> int:
    started = time.time()
    files = options.records or sorted(DATASETS.glob("*.parquet"))
    table = records.read_records(
        files, device=options.measured_on, on_bad=lambda line: None, progress=quiet
    )
    most = 400 if options.quick else options.max_records
    division = Division("within_task", None, 0, Shares(test=0.1, validation=0.1), most)
    found = divide(table.rows, division)
    drawn = inputs.Inputs.of(table, inputs.all_rows(found), tilings.SCHEMA, quiet)
    parts = drawn.parts(AttentionModel.name, found)
    devices = DEVICES if has_cuda() else DEVICES[:1]
    print(f"{len(parts.train.labels):,} records train, {len(parts.test.labels):,} test")
    gpu = gpu_name() if "cuda" in devices else None
    print(f"GPU: {gpu}")
    first = {}
    for device in devices:
        first[device] = learned(parts, AttentionModel(options.hidden, epochs=1, device=device))[1]
        print(f"the first epoch of all on {device}: {first[device]:.1f} s")
    rows = []
    for seed in range(1 if options.quick else options.seeds):
        for device in devices:
            model = AttentionModel(
                options.hidden, epochs=options.epochs, patience=options.epochs, seed=seed,
                device=device,
            )  # fmt: skip
            rows.append({"device": device, "seed": seed, **row(parts, model)})
            common.table(rows[-1:], COLUMNS)
    print()
    common.table(rows, COLUMNS)
    checks = compared(rows) if "cuda" in devices else []
    figures = {"gpu": gpu, "rows": rows, "first": first}
    return common.finish("training", started, figures, checks, options.json)


def gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name()


def quiet(text: str) -> None:
    """Progress is not shown."""


def learned(parts: inputs.Parts, model: AttentionModel) -> tuple[AttentionModel, float]:
    """The model and the wall seconds it took."""
    given, validation = parts.train.measured(), parts.validation.measured()
    started = time.perf_counter()
    model.fit(given.programs, given.labels, given.tasks, validation)
    return model, time.perf_counter() - started


def row(parts: inputs.Parts, model: AttentionModel) -> dict[str, Any]:
    model, seconds = learned(parts, model)
    test = parts.test
    # As whoever uses it would: from the file, on a machine without a GPU.
    scores = AttentionModel.load(model.save()).predict(test.programs)
    return {"train_s": seconds, "epochs": len(model.history),
            **asdict(metrics.ranking(test.labels, scores, test.tasks)),
            "rmse": metrics.rmse(test.labels, scores)}  # fmt: skip


def compared(rows: list[dict[str, Any]]) -> list[common.Check]:
    def middle(device: str, name: str) -> float:
        found: float = statistics.median(row[name] for row in rows if row["device"] == device)
        return found

    return [
        common.at_least("times less wall time on the GPU",
                        middle("cpu", "train_s") / middle("cuda", "train_s"), 1.0, "condition"),
        common.at_most("pairs in order, GPU and CPU apart",
                       abs(middle("cpu", "pca") - middle("cuda", "pca")), 0.01, "condition"),
    ]  # fmt: skip


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("records", nargs="*", type=Path, help="instead of those of `datasets/`")
    parser.add_argument("--measured-on", default="", help="the device of logs, which do not say it")
    parser.add_argument("--max-records", type=int, default=20_000, help="to train on, at most")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    common.run(main, parser)
