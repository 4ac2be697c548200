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
        ("unsupported operator", [*tune, f"{d}/unsupported.onnx"]),
        ("unknown zoo name", [*tune, "zoo:resnet51"]),
        ("unknown zoo parameter", [*tune, "zoo:resnet50?bacth=4"]),
        ("zoo parameter not a number", [*tune, "zoo:resnet50?batch=four"]),
        ("zoo parameter too small", [*tune, "zoo:resnet50?size=1"]),
        ("negative trials", ["tune", "zoo:tiny_cnn", "--trials", "-5"]),
        ("no time", ["tune", "zoo:tiny_cnn", "--minutes", "0"]),
        ("unknown cost model", ["tune", "zoo:tiny_cnn", "--cost-model", "oracle"]),
        ("unknown processor", [*tune, "zoo:tiny_cnn", "--target", "llvm -mcpu=pentium99"]),
        ("a processor this is not", [*tune, "zoo:tiny_cnn", "--target", "sapphirerapids"]),
        ("too many threads", [*tune, "zoo:tiny_cnn", "--threads", "4096"]),
        ("JSON to nowhere", [*tune, "zoo:tiny_cnn", "--json", f"{d}/no/such/folder/r.json"]),
        ("home is a file", ["tune", "zoo:tiny_cnn", "--trials", "2", "--home", f"{d}/text.txt"]),
        ("store is no store", ["jobs", "--home", f"{d}/store"]),
        ("no artifact", ["run", f"{d}/nothing", "--input", f"{d}/x.npy"]),
        ("damaged artifact", ["evaluate", f"{d}/half"]),
        ("unknown run id", ["evaluate", "0" * 32, "--home", f"{d}/home"]),
    ]


def _dynamic_onnx(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def _unsupported_onnx(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph([node], "g", [x], [y])
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets), path)


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
