"""PyTorch: programs saved with `torch.export.save`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES, seeded_inputs
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest
from tunefleet.compiler.frontends.spec import (
    TORCH_SUFFIX,
    listed,
    network_digest,
    network_name,
    shown,
    source_path,
)
from tunefleet.compiler.quiet import forget_frames, quiet
from tunefleet.core.network import NetworkInfo, TensorSpec
from tunefleet.errors import InputError, SetupError

if TYPE_CHECKING:
    import torch
    import tvm
    from torch.export import ExportedProgram


class TorchFrontend:
    """Reads ``.pt2`` files."""

    name = "pt2"

    def accepts(self, spec: str) -> bool:
        return spec.lower().endswith(TORCH_SUFFIX)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        path = source_path(spec)
        what = shown(path)
        require_torch(what)
        import torch

        with quiet():
            try:
                program = torch.export.load(path)
            except Exception as exc:
                raise InputError(
                    f"{what} is not a readable exported program ({type(exc).__name__})",
                    cure=f"write it with torch.export.save of torch {torch.__version__}",
                ) from exc
            return import_program(
                program,
                TorchReference(partial(torch.export.load, path)),
                what=what,
                name=network_name(path),
                source=self.name,
                digest=network_digest(path),
            )


class TorchReference:
    """Runs an exported program eagerly. `open_program` is called once in each process that runs
    it, so it must be fit to be pickled."""

    framework = "PyTorch"

    def __init__(self, open_program: Callable[[], ExportedProgram]) -> None:
        self._open_program = open_program
        self._opened: tuple[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
        import torch
        from torch.utils import _pytree as pytree

        before = torch.get_num_threads()
        try:
            outputs = self.bound([np.array(array) for array in inputs], threads)()
        finally:
            torch.set_num_threads(before)
        return [output.numpy() for output in pytree.tree_leaves(outputs)]

    def bound(self, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
        import torch
        from torch.utils import _pytree as pytree

        if self._opened is None:
            program = self._open_program()
            self._opened = program.module(), program.call_spec.in_spec
        module, in_spec = self._opened
        args, kwargs = pytree.tree_unflatten([torch.from_numpy(a) for a in inputs], in_spec)
        torch.set_num_threads(threads)

        def run() -> object:
            with torch.inference_mode():
                return module(*args, **kwargs)

        return run


def require_torch(what: str) -> None:
    """Raises SetupError, naming the extra to install, when torch is missing."""
    try:
        import torch  # noqa: F401  (only whether it is there matters)
    except ImportError as exc:
        raise SetupError(
            f"{what} needs torch, which is not installed", cure="pip install tunefleet[torch]"
        ) from exc


def import_program(
    program: ExportedProgram,
    reference: TorchReference,
    *,
    what: str,
    name: str,
    source: str,
    digest: str,
    input_names: Sequence[str] = (),
) -> ImportedNetwork:
    """Converts an exported program with static tensor inputs; raises InputError.

    `input_names` replaces the names of the arguments. The example inputs are those saved in the
    program, else seeded ones.
    """
    inputs = _inputs(program, what)
    if input_names:
        inputs = tuple(replace(i, name=n) for i, n in zip(inputs, input_names, strict=True))
    outputs = _output_names(program, what)
    saved = _saved_inputs(program, inputs)
    mod = _convert(program, what)
    from tunefleet.compiler.frontends.relax_ import output_specs

    info = NetworkInfo(name, source, digest, inputs, output_specs(mod, outputs, what))
    return ImportedNetwork(info, mod, reference, saved or seeded_inputs(inputs))


def _convert(program: ExportedProgram, what: str) -> tvm.IRModule:
    from tvm.relax.frontend.torch import from_exported_program

    from tunefleet.compiler.frontends.relax_ import cannot_import, tidy
    from tunefleet.compiler.frontends.torch_graph import simplify

    try:
        program = program.run_decompositions()
        simplify(program)
    except Exception as exc:
        forget_frames(exc)
        raise cannot_import(what, exc) from exc
    _check_operators(program, what)
    try:
        mod = from_exported_program(
            program, unwrap_unit_return_tuple=True, run_ep_decomposition=False
        )
        return tidy(mod)
    except Exception as exc:
        forget_frames(exc)
        raise cannot_import(what, exc) from exc


def _check_operators(program: ExportedProgram, what: str) -> None:
    from tvm.relax.frontend.torch.exported_program_translator import (
        ExportedProgramImporter,
    )

    known = ExportedProgramImporter().convert_map
    used = {
        str(getattr(node.target, "__name__", node.target)): str(node.target)
        for node in program.graph.nodes
        if node.op == "call_function"
    }
    missing = sorted(used[operator] for operator in used.keys() - known.keys())
    if missing:
        raise InputError(
            f"{what}: TVM has no conversion for the torch operator{'s' * (len(missing) > 1)} "
            f"{listed(missing)}",
            cure="replace them in the module and export it again",
        )


def _inputs(program: ExportedProgram, what: str) -> tuple[TensorSpec, ...]:
    import torch
    from torch.export.graph_signature import InputKind, TensorArgument

    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    found = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        name = spec.arg.name
        value = values.get(name)
        if not isinstance(spec.arg, TensorArgument) or not isinstance(value, torch.Tensor):
            raise InputError(
                f"{what}: input {name} is not a tensor",
                cure="wrap the module so that it takes tensors only, and export it again",
            )
        found.append(_input(name, value, what))
    return tuple(found)


def _input(name: str, value: torch.Tensor, what: str) -> TensorSpec:
    symbols = [str(extent) for extent in value.shape if not isinstance(extent, int)]
    if symbols:
        raise InputError(
            f"{what}: input {name} has the dynamic dimension {', '.join(symbols)}",
            cure="export it without dynamic_shapes, one file per shape",
        )
    if 0 in value.shape:
        raise InputError(f"{what}: input {name} is empty", cure="export it with larger inputs")
    return TensorSpec(name, tuple(value.shape), _dtype(value, name, what))


def _dtype(value: torch.Tensor, name: str, what: str) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in NUMPY_DTYPES:
        raise InputError(
            f"{what}: input {name} is {dtype}, which NumPy does not have",
            cure="export the module with float32 or float16 inputs",
        )
    return dtype


def _output_names(program: ExportedProgram, what: str) -> list[str]:
    from torch.export.graph_signature import OutputKind, TensorArgument

    specs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    if not specs or not all(isinstance(spec.arg, TensorArgument) for spec in specs):
        raise InputError(
            f"{what}: the network does not return tensors only",
            cure="wrap the module so that it does, and export it again",
        )
    return [f"output{index}" for index in range(len(specs))] if len(specs) > 1 else ["output"]


def _saved_inputs(
    program: ExportedProgram, specs: tuple[TensorSpec, ...]
) -> tuple[np.ndarray, ...] | None:
    from torch.utils import _pytree as pytree

    leaves: list[Any] = pytree.tree_leaves(program.example_inputs)
    arrays = tuple(leaf.detach().numpy() for leaf in leaves if hasattr(leaf, "detach"))
    fits = [(array.shape, array.dtype.name) for array in arrays]
    return arrays if fits == [(spec.shape, spec.dtype) for spec in specs] else None
