"""The compile step: the network with the best program of each task."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tunefleet.artifacts.segments import FOLDER
from tunefleet.artifacts.weights import weights_path
from tunefleet.compiler.toolchain.linking import tools_of
from tunefleet.core.known import traces_of
from tunefleet.core.step import Compiled, Remark
from tunefleet.core.target import CudaTarget, Target
from tunefleet.errors import InternalError
from tunefleet.stages.known import programs_of
from tunefleet.stages.place import StepRequest, Workplace
from tunefleet.stages.prepared import prepared_of
from tunefleet.stages.winners import codes_of
from tunefleet.system.sandbox import Sandbox
from tunefleet.workers.apart import call_apart

_FOLDER, MODULE, GRAPHS = "module", "tuned.so", "graphs.so"


def run(place: Workplace, request: StepRequest) -> tuple[Compiled, tuple[Remark, ...]]:
    """Compile with the job's winners, or without a job with the best verified records."""
    delivery = request.delivery
    if delivery is None:
        raise InternalError("nothing is compiled without a delivery")
    prepared = prepared_of(place, request.preparation)
    traces = traces_of(programs_of(place.store, delivery, prepared.imported.tasks))
    remarks = []
    if delivery.job is None and not traces:
        remarks.append(Remark("no verified record fits this device: the module is plain"))
    objects = place.objects(request.key.owner)
    codes = {} if delivery.job is None else codes_of(place, request.key.owner, delivery.job)
    with objects.draft() as draft:
        folder = Path(draft, _FOLDER)
        folder.mkdir()
        plain = call_apart(
            f"{prepared.info.name}: compiling it failed",
            compile_program,
            prepared.program,
            prepared.plain,
            folder / MODULE,
            request.preparation.target,
            traces,
            codes,
            cores=place.machine.layout.host_cores,
            network_bytes=prepared.imported.footprint.weights,
            sandbox=Sandbox(
                (prepared.folder, *codes.values()), (folder,), tools_of(request.preparation.target)
            ),
        )
        if (prepared.folder / FOLDER).is_dir():
            # Read only, and as large as what stays in the source framework.
            shutil.copytree(prepared.folder / FOLDER, folder / FOLDER, copy_function=os.link)
        return Compiled(objects.put(folder), plain), tuple(remarks)


def compile_program(
    program: Path,
    plain: Path,
    path: Path,
    target: Target,
    traces: Mapping[str, str],
    codes: Mapping[str, Path],
) -> tuple[str, ...]:
    """Compile a program that an import wrote with the given traces into a library; of the programs
    of tasks in `codes` these are the object files. For a GPU there is a library with CUDA graphs as
    well, and the verify step takes the faster one. A graph would record what a segment gave in the
    first call: a network with segments has none. Returns the names of the programs of which there
    is no trace."""
    from tunefleet.compiler.code.executable import compile_to
    from tunefleet.compiler.graph.footprint import segment_copies
    from tunefleet.compiler.graph.tasks import untraced
    from tunefleet.compiler.graph.weights import load_program

    module = load_program(program, weights_path(plain))
    recorded = isinstance(target, CudaTarget) and not segment_copies(module["main"]).to_gpu
    graphs = path.with_name(GRAPHS) if recorded else None
    compile_to(path, module, target, traces, codes, graphs=graphs)
    return untraced(module, target, traces)
