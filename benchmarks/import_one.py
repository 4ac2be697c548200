"""One network of the corpus, in a process of its own: exported, or imported and verified.

    python benchmarks/import_one.py export PACKAGE NAME FORM FILE
    python benchmarks/import_one.py import FILE SHAPES-AS-JSON

Prints one line of JSON. `import_corpus.py` calls it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

THREADS = int(os.environ.get("CORPUS_THREADS", "1"))


def exported(package: str, name: str, form: str, path: Path) -> dict[str, Any]:
    """Writes the file; `dims` are the values of its free dimensions besides the batch."""
    import torch

    import corpus

    torch.set_num_threads(THREADS)
    found = next(a for a in corpus.architectures(package) if a.name == name)
    torch.manual_seed(0)
    example = found.build()
    corpus.export(example, form, path)  # type: ignore[arg-type]
    free: dict[str, int] = {}
    if form == "onnx-dynamic":
        for tensor, axes_of in zip(example.inputs, example.names, strict=True):
            for axis, dim in example.dynamic.get(axes_of, {}).items():
                free[dim] = int(tensor.shape[axis])
        # Some networks compute with an extent as they are exported, which fixes it.
        free = {dim: extent for dim, extent in free.items() if dim in _named(path)}
    return {"dims": {dim: value for dim, value in free.items() if dim != "batch"}}


def _named(path: Path) -> set[str]:
    """The free dimensions of the inputs of an ONNX file."""
    import onnx

    inputs = onnx.load(path, load_external_data=False).graph.input
    return {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim}


def imported(path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Imports, compiles with the plain schedule, runs and compares with the source framework."""
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.artifacts.runtime import set_threads
    from tunefleet.compiler.code.executable import compile_to
    from tunefleet.compiler.graph.tasks import multiplies_bytes
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.importing import ImportOptions
    from tunefleet.runs.request import shape_request
    from tunefleet.stages.agreement import agreement, otherwise_of
    from tunefleet.stages.importing import import_network
    from tunefleet.stages.work import run_reference

    target = native_target(THREADS)
    set_threads(THREADS)
    with tempfile.TemporaryDirectory() as temporary:
        folder, clock = Path(temporary), [time.perf_counter()]

        def lap() -> float:
            clock.append(time.perf_counter())
            return round(clock[-1] - clock[-2], 2)

        parts = (asked.get(part, {}) for part in ("shapes", "dims", "constants"))
        shapes = shape_request(*parts)
        network = import_network(str(path), target, folder, ImportOptions(shapes))
        row: dict[str, Any] = {"import_s": lap()}
        (source,) = network.variants
        row |= {
            "tasks": len(network.tasks),
            "segments": [list(s.nodes) for s in source.segments],
            "reasons": sorted({s.reason for s in source.segments}),
        }
        compile_to(folder / "plain.so", network.module, target, {})
        row["compile_s"] = lap()
        module = LoadedNetwork(str(folder / "plain.so"))
        described = source.reference.describe()
        quantised = any(map(multiplies_bytes, network.tasks))

        def reference(_: int, inputs: Any, **how: bool) -> list[Any]:
            return run_reference({**described, **how}, list(inputs), THREADS)

        found = agreement(
            [source.example_inputs],
            network.float_type,
            reference,
            lambda _, inputs: module.run(list(inputs)),
            otherwise_of(described["kind"], reference, quantised=quantised),
            quantised=quantised,
        )
        row["run_s"] = lap()
        # A comparison of outputs that are nothing says nothing.
        (expected,) = found.expected
        row |= {
            "difference": found.difference,
            "tolerance": found.tolerance,
            "largest": min((float(abs(e).max()) for e in expected if e.size), default=0.0),
            "verified": found.holds,
        }
    return row


def main(arguments: list[str]) -> int:
    warnings.simplefilter("ignore")
    try:
        if arguments[0] == "export":
            package, name, form, path = arguments[1:]
            row = exported(package, name, form, Path(path))
        else:
            row = imported(Path(arguments[1]), json.loads(arguments[2]))
    except BaseException as error:
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        row = {"error": f"{type(error).__name__}: {text[0][:300]}"}
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
