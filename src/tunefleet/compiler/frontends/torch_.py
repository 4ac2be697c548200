"""PyTorch: programs saved with `torch.export.save`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES, lacking, seeded_inputs
from tunefleet.compiler.frontends.imported import (
    ImportedNetwork,
    ImportRequest,
    check_operators,
)
from tunefleet.compiler.frontends.spec import (
    TORCH_SUFFIX,
    network_digest,
    network_name,
    shown,
    source_path,
)
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.network import UNKNOWN, NetworkInfo, TensorSpec
from tunefleet.errors import (
    InputError,
    InternalError,
    TunefleetError,
    raise_mistake,
)
from tunefleet.system.packages import require

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class TorchFrontend:
    """Reads ``.pt2`` files."""

    name = "pt2"

    def accepts(self, spec: str) -> bool:
        return spec.lower().endswith(TORCH_SUFFIX)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        from tunefleet.compiler.frontends.torch_module import saved_dims

        path = source_path(spec)
        what = shown(path)
        require_torch(what)
        with quiet():
            return import_program(
                _read(path, what, trust=request.trust),
                TorchReference(TorchSource("torch_", str(path.absolute()), trust=request.trust)),
                request,
                what=what,
                name=network_name(path),
                source=self.name,
                digest=network_digest(path),
                dim_names=saved_dims(path),
            )


def open_program(path: Path, *, trust: bool = False) -> ExportedProgram:
    """The program in a file."""
    from tunefleet.artifacts import torch_file

    return torch_file.open_program(path, trust=trust)


def _read(path: Path, what: str, *, trust: bool) -> ExportedProgram:
    import torch

    try:
        return open_program(path, trust=trust)
    except TunefleetError:
        raise
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what} is not a readable exported program ({type(exc).__name__})",
            cure=f"write it with torch.export.save of torch {torch.__version__}",
        ) from exc


@dataclass(frozen=True, slots=True)
class TorchSource:
    """Where an exported program comes from: `program_of` of a module of this package opens `spec`,
    for `inputs` where it is exported again. `nudged`: with weights that are moved by their last
    bit, to see how far that moves the outputs."""

    module: str
    spec: str
    inputs: tuple[TensorSpec, ...] = ()
    trust: bool = False
    nudged: bool = False

    def __call__(self) -> ExportedProgram:
        opener = importlib.import_module(f"tunefleet.compiler.frontends.{self.module}")
        program: ExportedProgram = opener.program_of(self)
        if self.nudged:
            _nudge(program)
        return program

    def describe(self) -> dict[str, Any]:
        inputs = [[t.name, list(t.shape), t.dtype] for t in self.inputs]
        return {"kind": "torch", "module": self.module, "spec": self.spec, "inputs": inputs,
                "trust": self.trust, "nudged": self.nudged}  # fmt: skip

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TorchSource:
        inputs = tuple(TensorSpec(n, tuple(shape), dtype) for n, shape, dtype in value["inputs"])
        nudged = value.get("nudged", False)
        return cls(value["module"], value["spec"], inputs, value["trust"], nudged)


def _nudge(program: ExportedProgram) -> None:
    import torch

    from tunefleet.compiler.graph.sensitivity import nudged

    for tensor in program.state_dict.values():
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.dtype is torch.float32:
            (moved,) = nudged([tensor.detach().numpy()], "float32")
            with torch.no_grad():
                tensor.copy_(torch.from_numpy(np.asarray(moved)))


def program_of(source: TorchSource) -> ExportedProgram:
    return open_program(Path(source.spec), trust=source.trust)


class TorchReference:
    """Runs an exported program eagerly, each time from the state that was saved. `open_program`
    is called once in each process that runs it; one that no `TorchSource` is runs in this process
    only."""

    framework = "PyTorch"

    def __init__(self, open_program: Callable[[], ExportedProgram]) -> None:
        self._open_program = open_program
        self._opened: tuple[Any, ExportedProgram, list[tuple[Any, Any]]] | None = None
        self._device = "cpu"

    def move_to_gpu(self, number: int) -> bool:
        """Run on a GPU from now on; False, and nothing moves, where torch has no CUDA."""
        import torch

        if not torch.cuda.is_available():
            return False
        # Its convolutions would round to TF32, as float32 programs of ours do not.
        torch.backends.cudnn.allow_tf32 = False
        self._device, self._opened = f"cuda:{number}", None
        return True

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def describe(self) -> dict[str, Any]:
        if not isinstance(self._open_program, TorchSource):
            raise InternalError("a program of this process cannot be opened in another")
        return self._open_program.describe()

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
        import torch
        from torch.utils import _pytree as pytree

        module, args, kwargs, saved = self._prepared(inputs)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        versions = [buffer._version for buffer, _ in saved]
        try:
            with torch.no_grad():
                outputs = pytree.tree_leaves(module(*args, **kwargs))
                copies = [o.detach().clone() for o in outputs if isinstance(o, torch.Tensor)]
                for (buffer, value), version in zip(saved, versions, strict=True):
                    if buffer._version != version:
                        buffer.copy_(value)
        finally:
            torch.set_num_threads(before)
        return [output.contiguous().cpu().numpy() for output in copies]

    def bound(self, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
        import torch

        module, args, kwargs, _ = self._prepared(inputs)
        torch.set_num_threads(threads)
        waits = self._device != "cpu"

        def run() -> object:
            with torch.no_grad():
                outputs = module(*args, **kwargs)
            if waits:
                torch.cuda.synchronize(self._device)
            return outputs

        return run

    def _prepared(self, inputs: Sequence[np.ndarray]) -> tuple[Any, Any, Any, Any]:
        """The module, its arguments, and its buffers with their values before any call."""
        import torch

        from tunefleet.compiler.frontends.torch_shapes import arguments

        tensors = [torch.from_numpy(np.array(array)).to(self._device) for array in inputs]
        if self._opened is None:
            program = self._open_program()
            if self._device != "cpu":
                from torch.export.passes import move_to_device_pass

                program = move_to_device_pass(program, self._device)
            module = program.module()
            saved = [(buffer, buffer.clone()) for buffer in module.buffers()]
            self._opened = module, program, saved
        module, program, saved = self._opened
        args, kwargs = arguments(program, tensors)
        return module, args, kwargs, saved


def require_torch(what: str) -> None:
    """Raises SetupError, naming the extra to install, when torch is missing or does not load."""
    require(what, ("torch",), "pip install tunefleet[torch]")


def import_program(
    program: ExportedProgram,
    reference: TorchReference | None = None,
    request: ImportRequest | None = None,
    *,
    what: str,
    name: str,
    source: str,
    digest: str,
    input_names: Sequence[str] = (),
    dim_names: Mapping[str, str] | None = None,
) -> ImportedNetwork:
    """Converts an exported program; raises InputError. Without a `reference` the program itself
    is one, in this process only.

    `input_names` replaces the names of the arguments, `dim_names` those of symbols. Free
    dimensions take the values of `request`; without one all shapes must be static and nothing may
    stay in PyTorch. The example inputs are those saved in the program where they have the shapes,
    else seeded ones.
    """
    from tunefleet.compiler.frontends import torch_shapes
    from tunefleet.compiler.frontends.torch_import import convert

    check_operators(sum(node.op == "call_function" for node in program.graph.nodes), what)
    request = request or ImportRequest(Path(), whole=True)
    dimensions = torch_shapes.Dimensions.of(program, dim_names or {})
    inputs = torch_shapes.user_inputs(program, dimensions, what)
    if input_names:
        inputs = tuple(replace(i, name=n) for i, n in zip(inputs, input_names, strict=True))
    fixed = torch_shapes.fix(program, inputs, dimensions, request.shapes, what)
    saved = torch_shapes.saved_inputs(program, fixed)
    static = torch_shapes.specialise(program, fixed, inputs, what)
    reference = reference or TorchReference(lambda: program)
    names = _output_names(static, what)
    outputs = _output_specs(static, names, what)
    converted = convert(static, request, what)
    info = NetworkInfo(name, source, digest, fixed.specs, outputs)
    return ImportedNetwork(
        info,
        converted.mod,
        reference,
        saved or seeded_inputs(fixed.specs),
        converted.segments,
        (*fixed.notes, *converted.notes),
        drawn=not saved,
    )


def _output_names(program: ExportedProgram, what: str) -> dict[int, str]:
    """Names of the outputs that are tensors, by their place among all leaves: the keys of a
    dictionary or of a dataclass, else numbers."""
    from torch.export.graph_signature import OutputKind, TensorArgument

    specs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    places = [i for i, spec in enumerate(specs) if isinstance(spec.arg, TensorArgument)]
    if not places:
        raise InputError(
            f"{what}: the network returns no tensor",
            cure="wrap the module so that it does, and export it again",
        )
    out_spec = program.call_spec.out_spec
    keys: Any = getattr(out_spec, "_context", None)
    children = list(out_spec.children()) if hasattr(out_spec, "children") else []
    flat = len(children) == len(specs) and all(child.is_leaf() for child in children)
    named = isinstance(keys, list | tuple) and all(isinstance(key, str) for key in keys)
    if flat and named and len(keys) == len(specs):
        return {place: str(keys[place]) for place in places}
    if len(places) == 1:
        return {places[0]: "output"}
    return {place: f"output{index}" for index, place in enumerate(places)}


def _output_specs(
    program: ExportedProgram, names: dict[int, str], what: str
) -> tuple[TensorSpec, ...]:
    from tunefleet.compiler.frontends.torch_import import user_outputs

    leaves = user_outputs(program)
    specs = []
    for place, name in names.items():
        value = leaves[place].meta["val"]
        shape = tuple(e if isinstance(e, int) else UNKNOWN for e in value.shape)
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in NUMPY_DTYPES:
            raise InputError(
                f"{what}: output {name} is {dtype}, which {lacking(dtype)} does not have",
                cure="return torch.view_as_real of it"
                if value.is_complex()
                else "export the network with float32 or float16 outputs",
            )
        if 0 in shape:
            raise InputError(
                f"{what}: output {name} is empty: {shape}", cure="choose larger inputs"
            )
        specs.append(TensorSpec(name, shape, dtype))
    return tuple(specs)
