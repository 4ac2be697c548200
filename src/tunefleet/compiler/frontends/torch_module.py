"""Modules given from Python: exported to a file that everything else works from."""

from __future__ import annotations

import inspect
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tunefleet.compiler.frontends.blame import gist
from tunefleet.compiler.frontends.spec import TORCH_SUFFIX, listed, shown
from tunefleet.compiler.frontends.torch_ import require_torch
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.files import ARCHIVE_ERRORS
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from torch.export import ExportedProgram

#: Beside the program in its file: names of free dimensions by symbol, which torch does not keep.
_DIMS_FILE = "tunefleet_dims.json"

Dynamic = Mapping[str, Mapping[int, Any]]


def file_of(
    network: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None,
    dynamic: Dynamic | None,
    folder: Callable[[], Path],
) -> str | Path:
    """Where a network is read from: what is no path is a module, and saved below `folder` first."""
    if not isinstance(network, str | os.PathLike):
        return saved_module(network, example_inputs, dynamic, folder())
    if example_inputs is not None or dynamic is not None:
        raise InputError(
            f"{network} is no module: it has inputs of its own",
            cure="leave out example_inputs and dynamic; free dimensions take dims and shapes",
        )
    return Path(network) if isinstance(network, os.PathLike) else network


def saved_module(
    module: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None,
    dynamic: Dynamic | None,
    folder: Path,
) -> Path:
    """Exports a module in eval mode and writes it below `folder`, in a place named by its content:
    the same module, weights and shapes give the same file.

    `example_inputs` are tensors by place, or by name. `dynamic` gives the free axes of inputs by
    the names that `forward` has for them: axis to a name, or to a `torch.export.Dim`. An exported
    program is taken as it is. Raises InputError.
    """
    what = type(module).__name__
    require_torch(what)
    import torch

    if isinstance(module, torch.export.ExportedProgram):
        program, name, names = module, "program", {}
        if example_inputs is not None or dynamic is not None:
            raise InputError(
                "an exported program has its inputs and free dimensions already",
                cure="leave out example_inputs and dynamic",
            )
    else:
        _check_module(module, what)
        args, kwargs = _arguments(example_inputs, what)
        given = _bound(module, args, kwargs, what)
        shapes = _shapes(given, dynamic or {}, what)
        program = _export(module, args, kwargs, shapes, what)
        name, names = what, _names(program, shapes)
    _check_outputs(program, what)
    program = _in_operators(program)
    path = folder / _digest(program, names)[:32] / f"{name}{TORCH_SUFFIX}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder("module", path.parent) as draft, quiet():
            written = Path(draft) / path.name
            _save(program, written, names, what)
            written.rename(path)
    return path


def saved_dims(path: Path) -> dict[str, str]:
    """Names of free dimensions by symbol, of a file written here; empty for any other.

    Raises InputError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [n for n in archive.namelist() if n.endswith(f"/extra/{_DIMS_FILE}")]
            names = archive.read(entries[0]) if entries else b"{}"
    except ARCHIVE_ERRORS:
        # Reading the program says what is wrong with its file.
        return {}
    try:
        return msgspec.json.decode(names, type=dict[str, str])
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            f"{shown(path)} has no usable names of its free dimensions: {error}",
            cure="write it again from the torch module",
        ) from error


def _check_module(module: Any, what: str) -> None:
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"a network is a path, zoo:NAME or a torch module, not {what}",
            cure="give a torch.nn.Module with example_inputs",
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError(
            f"{what} is a TorchScript module, which torch does not export",
            cure="give the module that it was made of",
        )
    training = [name or what for name, part in module.named_modules() if part.training]
    if training and not _is_traced(module):
        raise InputError(
            f"{what} is in training mode: {listed(training, 3)}", cure="call its eval() first"
        )
    places = {str(t.device) for t in (*module.parameters(), *module.buffers())} - {"cpu"}
    if places:
        raise InputError(f"{what} lies on {listed(sorted(places))}", cure="call its cpu() first")


def _is_traced(module: Any) -> bool:
    """Whether a module computes what was written down of it once, in whatever mode it is: those
    that torchao quantises say that they are training, and have no eval()."""
    from torch.fx import GraphModule

    if not isinstance(module, GraphModule):
        return False
    return all(n.target == "_guards_fn" for n in module.graph.find_nodes(op="call_module"))


def _arguments(
    given: Sequence[Any] | Mapping[str, Any] | None, what: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    if given is None:
        raise InputError(
            f"{what} is a module, whose inputs are not known",
            cure="from_network(module, example_inputs=(torch.randn(1, 3, 224, 224),))",
        )
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, torch.Tensor):
        args = (given,)
    elif isinstance(given, Mapping):
        kwargs = dict(given)
    else:
        args = tuple(given)
    for value in (*args, *kwargs.values()):
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"{what}: example_inputs hold {type(value).__name__}, not tensors alone",
                cure="set what is no tensor in the module, and give a tuple or dict of tensors",
            )
    return args, kwargs


def _bound(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> dict[str, Any]:
    """The example inputs by the names of `forward`."""
    try:
        return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    except TypeError as exc:
        raise InputError(
            f"{what}: example_inputs do not fit its forward: {exc}",
            cure="give one tensor for each argument without a default",
        ) from exc


def _shapes(given: Mapping[str, Any], dynamic: Dynamic, what: str) -> dict[str, Any] | None:
    """What torch is to leave free; None where nothing is."""
    import torch

    if not dynamic:
        return None
    known = [name for name, value in given.items() if isinstance(value, torch.Tensor)]
    dims: dict[str, Any] = {}
    shapes: dict[str, Any] = dict.fromkeys(given)
    for name, axes in dynamic.items():
        if name not in known:
            raise InputError(f"{what} has no input {name}", cure=f"its inputs: {listed(known)}")
        shapes[name] = {}
        for axis, dim in axes.items():
            if not isinstance(axis, int) or not 0 <= axis < given[name].dim():
                raise InputError(
                    f"{what}: input {name} has {given[name].dim()} axes, {axis} is none of them",
                    cure=f"such as dynamic={{{name!r}: {{0: 'batch'}}}}",
                )
            if isinstance(dim, str) and not dim.isidentifier():
                raise InputError(f"{what}: {dim!r} is no name", cure="use letters, digits and _")
            if isinstance(dim, str):
                dim = dims.setdefault(dim, torch.export.Dim(dim))
            shapes[name][axis] = dim
    return shapes


def _export(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: dict[str, Any] | None,
    what: str,
) -> ExportedProgram:
    import torch

    try:
        with torch.no_grad(), quiet():
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what}: torch cannot export it: {_reason(exc)}",
            cure="free axes need examples of 2 and more; what depends on values cannot be exported",
        ) from exc


def _in_operators(program: ExportedProgram) -> ExportedProgram:
    """The program without the functions that torch.vmap calls, which are no operators: a file with
    them is refused."""
    from tunefleet.artifacts.torch_safety import PREDISPATCH

    functions = {node.target for node in program.graph.nodes if node.op == "call_function"}
    if not any(getattr(each, "__module__", "") == PREDISPATCH for each in functions):
        return program
    with quiet():
        decomposed: ExportedProgram = program.run_decompositions({})
        return decomposed


def _save(program: ExportedProgram, path: Path, names: Mapping[str, str], what: str) -> None:
    import torch

    try:
        torch.export.save(program, path, extra_files={_DIMS_FILE: json.dumps(names)})
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what}: torch cannot save it: {gist(exc).partition(' in graph')[0]}",
            cure="replace the node that it names; flex_attention by "
            "torch.nn.functional.scaled_dot_product_attention with a mask",
        ) from exc


def _reason(exc: Exception) -> str:
    """The gist of what torch says; of axes that cannot be free, the first one and why."""
    points = [line.strip(" -") for line in str(exc).splitlines() if line.strip().startswith("- ")]
    if "Constraints violated" in str(exc) and points:
        return points[0].split(". ")[0][:200]
    return gist(exc, 200)


def _check_outputs(program: ExportedProgram, what: str) -> None:
    from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT or isinstance(spec.arg, TensorArgument):
            continue
        is_none = isinstance(spec.arg, ConstantArgument) and spec.arg.value is None
        if not is_none:
            value = getattr(spec.arg, "value", spec.arg)
            raise InputError(
                f"{what} returns {type(value).__name__} {str(value)[:40]}, not tensors alone",
                cure="return tensors, or a tuple or dict of tensors",
            )


def _names(program: ExportedProgram, shapes: dict[str, Any] | None) -> dict[str, str]:
    """What each symbol of the program was called by the user."""
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    names = {}
    for name, axes in (shapes or {}).items():
        for axis, dim in (axes or {}).items():
            extent = nodes[name].meta["val"].shape[axis] if name in nodes else 0
            if not isinstance(extent, int) and hasattr(dim, "__name__"):
                names[str(extent.node.expr)] = str(dim.__name__)
    return names


def _digest(program: ExportedProgram, names: Mapping[str, str]) -> str:
    """Of the operators, the shapes and the weights."""
    import torch

    from tunefleet.compiler.frontends.torch_nodes import operators_of

    shapes = [str(n.meta["val"]) for n in program.graph.nodes if n.op == "placeholder"]
    operators = operators_of(program.graph_module)
    content = sha256(json.dumps([operators, shapes, sorted(names.items())]).encode())
    content.update(str(program.range_constraints).encode())
    for name, value in sorted({**program.state_dict, **program.constants}.items()):
        content.update(name.encode())
        for tensor in _parts(value) if isinstance(value, torch.Tensor) else ():
            flat = tensor.detach().contiguous().reshape(-1)
            content.update(flat.view(torch.uint8).numpy().data)
    return content.hexdigest()


def _parts(tensor: Any) -> list[Any]:
    """The plain tensors of one: itself, or what a class of quantised weights keeps."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in _parts(getattr(tensor, name))]
