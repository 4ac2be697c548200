"""An exported program with static inputs as Relax, with segments for what cannot be compiled."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx import Node

from tunefleet.compiler.frontends.imported import ImportRequest, Segment
from tunefleet.compiler.frontends.relax_ import cannot_import, tidy
from tunefleet.compiler.frontends.spec import listed
from tunefleet.compiler.frontends.torch_cut import (
    CannotCutError,
    OutsideNodes,
    described,
    parts,
    save,
)
from tunefleet.compiler.frontends.torch_lower import lower
from tunefleet.compiler.frontends.torch_translate import (
    CompileCheck,
    Translator,
    emit_segment,
    relax_constant,
    tensor_type,
)
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.quiet import forget_frames
from tunefleet.errors import InputError, raise_mistake

if TYPE_CHECKING:
    from torch.export import ExportedProgram

relax = load_tvm().relax


@dataclass(frozen=True)
class Converted:
    """The Relax module, what stays in PyTorch, and what the user should know."""

    mod: Any
    segments: tuple[Segment, ...]
    notes: tuple[str, ...]


def user_inputs(program: ExportedProgram) -> list[Node]:
    """The placeholders of the tensors among the arguments, in order."""
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    return [
        nodes[spec.arg.name]
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]


def user_outputs(program: ExportedProgram) -> list[Any]:
    """What the graph returns to the user, leaf by leaf: nodes and constants."""
    (output,) = (n for n in program.graph.nodes if n.op == "output")
    specs = program.graph_signature.output_specs
    leaves: Any = output.args[0]
    return [
        leaf
        for leaf, spec in zip(leaves, specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]


def convert(program: ExportedProgram, request: ImportRequest, what: str) -> Converted:
    """Converts what can be compiled and saves the rest below `request.folder`; raises InputError
    where `request.whole` refuses a rest."""
    check = CompileCheck()
    try:
        program, constants, refused = lower(program, check)
    except Exception as exc:
        raise_mistake(exc)
        forget_frames(exc)
        raise cannot_import(what, exc) from exc
    results = [n for n in user_outputs(program) if isinstance(n, Node)]
    results = [n for n in results if isinstance(n.meta.get("val"), torch.Tensor)]
    nodes = _needed(program, results, constants)
    needed = set(nodes)
    refused = {node: reason for node, reason in refused.items() if node in needed}
    if refused and request.whole:
        raise _refusal(refused, what)
    try:
        ordered = parts(nodes, refused, set(results), set(constants))
    except CannotCutError as exc:
        whole = dict.fromkeys(nodes, f"a part of it cannot be cut out: {exc}")
        ordered = parts(nodes, whole, set(results), set(constants))
    if refused and request.whole:
        raise _refusal(refused, what)
    segments: list[Segment] = []
    mod = _relax(program, ordered, constants, results, request, segments)
    return Converted(tidy(mod), tuple(segments), _notes(program))


def _needed(
    program: ExportedProgram, results: Sequence[Node], constants: dict[Node, Any]
) -> list[Node]:
    """The operators that the results depend on, in the order of the graph. What bounds a shape
    that depends on values comes along."""
    wanted: set[Node] = set()
    pending = list(results)
    pending += [
        n
        for n in program.graph.nodes
        if str(n.target).startswith(("aten._assert_scalar", "aten.sym_constrain"))
        and not all(operand in constants for operand in n.all_input_nodes)
    ]
    while pending:
        node = pending.pop()
        if node not in wanted and node not in constants:
            wanted.add(node)
            pending.extend(node.all_input_nodes)
    return [n for n in program.graph.nodes if n.op == "call_function" and n in wanted]


def _relax(
    program: ExportedProgram,
    ordered: Sequence[list[Node] | OutsideNodes],
    constants: dict[Node, Any],
    results: Sequence[Node],
    request: ImportRequest,
    segments: list[Segment],
) -> Any:
    builder = relax.BlockBuilder()
    translator = Translator(builder)
    env = translator.env
    inputs = user_inputs(program)
    for node in inputs:
        env[node] = relax.Var(node.name, tensor_type(node.meta["val"]))
    read = {node for part in ordered for node in _operands(part)} | set(results)
    env.update({n: relax_constant(v) for n, v in constants.items() if n in read and _is_tensor(v)})
    with builder.function("main", [env[node] for node in inputs]):
        with builder.dataflow():
            for part in ordered:
                if isinstance(part, OutsideNodes):
                    segment = save(part, constants, program.graph_module, request.folder)
                    segments.append(segment)
                    called = emit_segment(
                        builder,
                        segment.name,
                        [env[node] for node in part.inputs],
                        [node.meta["val"] for node in part.outputs],
                    )
                    env.update(zip(part.outputs, called, strict=True))
                else:
                    for node in part:
                        env[node] = translator.convert(node)
            outputs = [env[node] for node in results]
            whole = builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        builder.emit_func_output(whole)
    return builder.get()


def _operands(part: list[Node] | OutsideNodes) -> list[Node]:
    """What the compiled nodes of a part read."""
    if isinstance(part, OutsideNodes):
        return []
    return [operand for node in part for operand in node.all_input_nodes]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _refusal(refused: dict[Node, str], what: str) -> InputError:
    named = [n for n in refused if n.target is not operator.getitem]
    told = [f"{described(n)} ({refused[n]})" for n in named]
    return InputError(
        f"{what}: {len(named)} operator{'s' * (len(named) > 1)} would stay in PyTorch: "
        f"{listed(told, 2)}"[:250],
        cure="leave out --whole, or replace them in the module and export it again",
    )


def _notes(program: ExportedProgram) -> tuple[str, ...]:
    signature = program.graph_signature
    notes = []
    if signature.buffers_to_mutate:
        notes.append(
            f"the module changes {len(signature.buffers_to_mutate)} of its buffers; each inference "
            "starts from those saved"
        )
    if signature.user_inputs_to_mutate:
        notes.append(
            f"the module changes {len(signature.user_inputs_to_mutate)} of its inputs, which stay "
            "as they are here; give what they become as outputs"
        )
    return tuple(notes)
