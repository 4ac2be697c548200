"""A network that is divided over devices: its calls and tasks for each target, and its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunefleet.artifacts.arrays import save_arrays
from tunefleet.artifacts.weights import weights_path
from tunefleet.compiler.frontends import network_bytes, network_name
from tunefleet.compiler.frontends.spec import named_as_given
from tunefleet.compiler.toolchain.linking import tools_of
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions
from tunefleet.core.placement import Dataflow, Part
from tunefleet.core.target import Target
from tunefleet.core.task import WeightedTask
from tunefleet.stages.importing import (
    EXAMPLES,
    PLAIN,
    PROGRAM,
    import_network,
    import_sandbox,
)
from tunefleet.system.sandbox import Sandbox
from tunefleet.workers.apart import call_apart


@dataclass(frozen=True, slots=True)
class DivisibleNetwork:
    """A network for one target, at the first of its shapes. `task_ids` are those of the calls of
    `flow`. Its program and its example inputs lie in `folder`."""

    name: str
    tasks: tuple[WeightedTask, ...]
    flow: Dataflow
    task_ids: tuple[str, ...]
    folder: Path

    @property
    def examples(self) -> Path:
        return self.folder / EXAMPLES

    def compile_parts(
        self, target: Target, traces: Mapping[str, str], parts: Sequence[tuple[Part, Path]]
    ) -> None:
        """Compile parts, each into a library of its own, in a process apart; `traces` are by task
        id."""
        what = f"{self.name}: compiling its parts failed"
        size = weights_path(self.folder / PLAIN).stat().st_size
        call_apart(
            what,
            compile_parts,
            self.folder,
            target,
            dict(traces),
            list(parts),
            network_bytes=size,
            sandbox=Sandbox(
                (self.folder,),
                tuple({path.parent: None for _, path in parts}),
                tools_of(target),
            ),
        )


def divisible_network(
    spec: str, target: Target, folder: Path, options: ImportOptions = DEFAULT_IMPORT
) -> DivisibleNetwork:
    """Import a network in a process of its own, which writes what it needs again to `folder`.

    Raises JobError for a network that cannot be divided.
    """
    what = f"{network_name(spec)}: its import failed"
    size = network_bytes(spec)
    with named_as_given():
        return call_apart(
            what,
            import_divisible,
            spec,
            target,
            folder,
            options,
            network_bytes=size,
            sandbox=import_sandbox(spec, folder, options),
        )


def import_divisible(
    spec: str, target: Target, folder: Path, options: ImportOptions
) -> DivisibleNetwork:
    from tunefleet.compiler.graph.dataflow import NetworkFlow
    from tunefleet.compiler.graph.weights import Lifted, save_program, write_weights

    tasked = import_network(spec, target, folder, options)
    network = NetworkFlow(tasked.module)
    lifted = Lifted(tasked.module)
    save_program(tasked.module, lifted, folder / PROGRAM)
    write_weights(weights_path(folder / PLAIN), lifted)
    save_arrays(folder / EXAMPLES, [tasked.variants[0].example_inputs])
    return DivisibleNetwork(
        tasked.info.name,
        tuple(tasked.tasks),
        network.dataflow(),
        network.task_ids(target),
        folder,
    )


def compile_parts(
    folder: Path,
    target: Target,
    traces: Mapping[str, str],
    parts: Sequence[tuple[Part, Path]],
) -> None:
    """Compile parts of the program that an import wrote to `folder`."""
    from tunefleet.compiler.code.executable import compile_to
    from tunefleet.compiler.graph.dataflow import NetworkFlow
    from tunefleet.compiler.graph.weights import load_program

    network = NetworkFlow(load_program(folder / PROGRAM, weights_path(folder / PLAIN)))
    for part, path in parts:
        # TVM's machine copies all that it is given from elsewhere, at every call: weights as well.
        compile_to(path, network.module_of(part), target, traces, inside=True)
