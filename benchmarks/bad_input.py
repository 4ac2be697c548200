"""Bad input as a user gives it: one line on stderr, an exit code, no traceback, nothing lost.

Runs the real command for each case and prints the table of docs/bad-input.md.

    .venv/bin/python benchmarks/bad_input.py --json out.json > docs/bad-input.md
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import common


def cases(directory: Path) -> list[tuple[str, list[str]]]:
    """(what is wrong, arguments); files are made below `directory`."""
    (directory / "empty.onnx").write_bytes(b"")
    (directory / "garbage.onnx").write_bytes(b"\x13\x37" * 500)
    (directory / "garbage.pt2").write_bytes(b"PK\x03\x04 not a program")
    (directory / "weights.pth").write_bytes(b"x")
    (directory / "text.txt").write_text("x")
    (directory / "folder.onnx").mkdir()
    (directory / "store").mkdir()
    (directory / "store" / "store.sqlite").write_bytes(b"not a database, " * 100)
    (directory / "half").mkdir()
    (directory / "half" / "artifact.json").write_text('{"schema": "tunefleet-artifact/1"')
    np.save(directory / "x.npy", np.zeros((1, 2), "float32"))
    (directory / "bert").mkdir()
    (directory / "bert" / "config.json").write_text(
        '{"model_type": "bert", "architectures": ["BertModel"]}'
    )
    _dynamic_onnx(directory / "dynamic.onnx")
    _unsupported_onnx(directory / "unsupported.onnx")
    d = str(directory)
    tune = ["tune", "--trials", "2", "--home", f"{d}/home"]
    return [
        ("missing file", [*tune, "nowhere.onnx"]),
        ("a directory", [*tune, f"{d}/folder.onnx"]),
        ("empty file", [*tune, f"{d}/empty.onnx"]),
        ("corrupt ONNX", [*tune, f"{d}/garbage.onnx"]),
        ("corrupt exported program", [*tune, f"{d}/garbage.pt2"]),
        ("a state dictionary", [*tune, f"{d}/weights.pth"]),
        ("unknown suffix", [*tune, f"{d}/text.txt"]),
        ("dynamic shape", [*tune, f"{d}/dynamic.onnx"]),
        ("a constant of no input", [*tune, f"{d}/dynamic.onnx", "--constant", "speed=1"]),
        ("a constant that is no number", [*tune, f"{d}/dynamic.onnx", "--constant", "x=fast"]),
        ("a Hugging Face folder without weights", [*tune, f"{d}/bert"]),
        ("unsupported operator", [*tune, f"{d}/unsupported.onnx"]),
        ("unknown zoo name", [*tune, "zoo:resnet51"]),
        ("unknown zoo parameter", [*tune, "zoo:resnet50?bacth=4"]),
        ("zoo parameter not a number", [*tune, "zoo:resnet50?batch=four"]),
        ("zoo parameter too small", [*tune, "zoo:resnet50?size=1"]),
        ("negative trials", ["tune", "zoo:tiny_cnn", "--trials", "-5"]),
        ("no time", ["tune", "zoo:tiny_cnn", "--minutes", "0"]),
        ("unknown cost model", ["tune", "zoo:tiny_cnn", "--cost-model", "oracle"]),
        ("unknown pretrained cost model", [*tune, "zoo:tiny_cnn", "--pretrained", "nobody"]),
        ("unknown processor", [*tune, "zoo:tiny_cnn", "--target", "llvm -mcpu=pentium99"]),
        ("a processor this is not", [*tune, "zoo:tiny_cnn", "--target", "sapphirerapids"]),
        ("too many threads", [*tune, "zoo:tiny_cnn", "--threads", "4096"]),
        ("JSON to nowhere", [*tune, "zoo:tiny_cnn", "--json", f"{d}/no/such/folder/r.json"]),
        ("home is a file", ["tune", "zoo:tiny_cnn", "--trials", "2", "--home", f"{d}/text.txt"]),
        ("store is no store", ["jobs", "--home", f"{d}/store"]),
        ("no artifact", ["run", f"{d}/nothing", "--input", f"{d}/x.npy"]),
        ("damaged artifact", ["evaluate", f"{d}/half"]),
        ("unknown run id", ["evaluate", "0" * 32, "--home", f"{d}/home"]),
        *dataset_cases(directory),
        *costmodel_cases(directory),
    ]


def dataset_cases(directory: Path) -> list[tuple[str, list[str]]]:
    d = str(directory)
    record = (
        '{"i": [["[\\"f\\", 8]", "llvm", [1, 64, 64, 0, 0, 0, 0, 0], "", 0, []], '
        '[[], [["SP", 2, 0, 8, [4], 1]]]], "r": [[0.1], 0, 1.0, 1600000000], "v": "v0.6"}\n'
    )
    (directory / "good.json").write_text(record)
    (directory / "spoilt.json").write_text(record + record[:60] + "\n")
    (directory / "step.json").write_text(record + record.replace('"SP"', '"CP"'))
    (directory / "cut.json.gz").write_bytes(b"\x1f\x8b\x08\x00half a file")
    (directory / "bad.parquet").write_bytes(b"PAR1 and nothing more")
    (directory / "there.parquet").write_bytes(b"something")
    (directory / "bad.toml").write_text("[[device]]\nname = 3\n")
    (directory / "good.parquet").unlink(missing_ok=True)
    _import(directory / "good.json", directory / "good.parquet")
    out = ["-o", f"{d}/out.parquet", "--force"]
    load = ["dataset", "import", "--device", "v100", *out]
    return [
        ("a log that is not there", [*load, f"{d}/nowhere.json"]),
        ("a text that is no log", [*load, f"{d}/text.txt"]),
        ("a line broken off, --strict", [*load, "--strict", f"{d}/spoilt.json"]),
        ("an unknown step, --strict", [*load, "--strict", f"{d}/step.json"]),
        ("a damaged .gz, --strict", [*load, "--strict", f"{d}/cut.json.gz"]),
        ("an output that is there", ["dataset", "import", "--device", "v100", f"{d}/good.json",
                                     "-o", f"{d}/there.parquet"]),
        ("an output of another kind", [*load[:4], f"{d}/good.json", "-o", f"{d}/out.csv"]),
        ("no Parquet", ["dataset", "stats", f"{d}/bad.parquet"]),
        ("a rate above 1", ["dataset", "sample", f"{d}/good.parquet", "--rate", "2", *out]),
        ("too few records", ["dataset", "sample", f"{d}/good.parquet", "--rate", "0.5", *out]),
        ("a device that is not in the records",
         ["dataset", "split", f"{d}/good.parquet", "--by", "target", "--hold-out", "k80",
          "-o", f"{d}/split"]),
        ("an unknown device", ["dataset", "devices", "rtx9999"]),
        ("a wrong table of devices", ["dataset", "devices", "--devices", f"{d}/bad.toml"]),
        ("another format", ["dataset", "export", f"{d}/good.parquet", "--format", "metaschedule",
                            "-o", f"{d}/database"]),
        ("a network nobody has", ["dataset", "collect", "--networks", "zoo:nothing",
                                  "--home", f"{d}/home"]),
        ("a network given twice", ["dataset", "collect", "--networks", "zoo:tiny_cnn",
                                   "--networks", "zoo:tiny_cnn", "--home", f"{d}/home"]),
    ]  # fmt: skip


def costmodel_cases(directory: Path) -> list[tuple[str, list[str]]]:
    """Those of `tunefleet costmodel`, on the files of `dataset_cases`."""
    d = str(directory)
    (directory / "costmodel").mkdir()
    (directory / "costmodel" / "card.json").write_text('{"schema": "tunefleet-costmodel/1"')
    (directory / "costmodel.zip").write_bytes(b"PK\x03\x04 and nothing more")
    home = ["--home", f"{d}/home"]
    train = ["costmodel", "train", f"{d}/good.parquet", "--name", "mine", *home]
    return [
        ("an unknown kind of model", [*train, "--model", "svm"]),
        ("unknown features", [*train, "--features", "pixels/1"]),
        ("a split of too few records", train),
        ("a split without what it holds out", [*train, "--split", "by_network"]),
        ("a name with a folder", [*train, "--name", "../mine"]),
        ("a parent that nobody trained", [*train, "--parent", "nobody"]),
        ("CUDA for a model that has no use for it", [*train, "--model", "xgb",
                                                     "--device", "cuda"]),
        ("an unknown cost model to test", ["costmodel", "evaluate", "mine", f"{d}/good.parquet",
                                           *home]),
        ("a damaged card", ["costmodel", "show", f"{d}/costmodel", *home]),
        ("a damaged archive of a model", ["costmodel", "show", f"{d}/costmodel.zip", *home]),
    ]  # fmt: skip


def _import(log: Path, records: Path) -> None:
    from tunefleet.dataset import codecs, parquet

    parquet.write(codecs.read(log, device="v100"), records)


def _dynamic_onnx(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "width"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "width"])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def _unsupported_onnx(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph([node], "g", [x], [y])
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=9), path)


def main(options: argparse.Namespace) -> int:
    started = time.time()
    program = str(Path(sys.executable).parent / "tunefleet")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        chosen = cases(directory)
        for what, arguments in chosen[:4] if options.quick else chosen:
            done = subprocess.run(
                [program, *arguments], capture_output=True, text=True, check=False, timeout=120
            )
            text = done.stderr.strip().replace(name, "DIR").replace(str(Path.cwd()), "CWD")
            lines = [line for line in text.splitlines() if line.startswith("error")]
            rows.append(
                {
                    "case": what,
                    "exit": done.returncode,
                    "error": lines[-1] if lines else text,
                    "ok": done.returncode not in (0, 1, 70)
                    and len(lines) == 1
                    and "Traceback" not in text,
                }
            )
    print("# Bad input\n")
    print("What a user is told, in one line, with the exit code; made by")
    print("`.venv/bin/python benchmarks/bad_input.py > docs/bad-input.md`.\n")
    print("| wrong | exit | what is said |\n|---|---|---|")
    for row in rows:
        print(f"| {row['case']} | {row['exit']} | {str(row['error']).replace('|', '/')} |")
    bad = [str(row["case"]) for row in rows if not row["ok"]]
    checks = [
        common.at_least("bad inputs", len(rows), 15, "condition"),
        common.Check("not one line with a cause", ", ".join(bad), "none", "condition", not bad),
    ]
    sys.stdout, out = sys.stderr, sys.stdout
    code = common.finish("bad_input", started, {"rows": rows}, checks, options.json)
    sys.stdout = out
    return code


if __name__ == "__main__":
    common.run(main, common.parser("Bad inputs and what they are told."))
