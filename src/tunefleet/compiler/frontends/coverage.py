"""Which operators of each framework are compiled, from the tables that imports go by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunefleet.core.step import IS_RANDOM


class OperatorSupport(StrEnum):
    """What becomes of an operator. A form of it that cannot be compiled stays where it ran."""

    OURS = "compiled, by a conversion of tunefleet"
    TVM = "compiled, by TVM's conversion"
    WRITTEN_OUT = "compiled, written out in other operators"
    CONSTANT = "compiled where how often, whether and which is constant"
    STAYS = "stays in the source framework"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator by its name in its framework. `note` says why one is not compiled."""

    name: str
    support: OperatorSupport
    note: str = ""


def onnx_operators() -> Iterator[Operator]:
    """The operators of ONNX's newest opset, and those of ONNX Runtime's own that have a
    conversion."""
    import onnx

    from tunefleet.compiler.frontends.onnx_file import domain_of
    from tunefleet.compiler.frontends.onnx_graph import RANDOM, rule_of
    from tunefleet.compiler.frontends.onnx_operators import OPERATORS
    from tunefleet.compiler.frontends.onnx_refusal import Refusal
    from tunefleet.compiler.frontends.onnx_sequences import KNOWN

    standard = {
        s.name: s for s in onnx.defs.get_all_schemas() if not domain_of(s) and not s.deprecated
    }
    for name, schema in sorted(standard.items()):
        try:
            by_tvm = rule_of("", name) is None
            support, note = OperatorSupport.TVM if by_tvm else OperatorSupport.OURS, ""
        except Refusal as refusal:
            support, note = OperatorSupport.STAYS, str(refusal)
            is_function = schema.has_function or schema.has_context_dependent_function
            if is_function and name not in RANDOM:
                support, note = OperatorSupport.WRITTEN_OUT, ""
        if name in ("If", "Loop", "Scan", *KNOWN):
            support, note = OperatorSupport.CONSTANT, ""
        if support is not OperatorSupport.CONSTANT and not _is_of_numbers(schema):
            support, note = OperatorSupport.STAYS, "it takes or gives no tensors of numbers"
        yield Operator(name, support, note)
    for domain, name in sorted(OPERATORS):
        if domain:
            yield Operator(f"{domain}.{name}", OperatorSupport.OURS)


def _is_of_numbers(schema: Any) -> bool:
    """Whether all that an operator takes and gives can be tensors of numbers."""
    return all(
        any(kind.startswith("tensor(") and kind != "tensor(string)" for kind in formal.types)
        for formal in (*schema.inputs, *schema.outputs)
    )


def torch_operators() -> Iterator[Operator]:
    """The operators of PyTorch's core, and others that are known here or to TVM."""
    import torch
    from torch._decomp import decomposition_table

    from tunefleet.compiler.frontends.torch_complex_rules import RULES
    from tunefleet.compiler.frontends.torch_decompositions import DECOMPOSITIONS
    from tunefleet.compiler.frontends.torch_operators import OF_PACKAGES, OPERATORS
    from tunefleet.compiler.frontends.torch_translate import Translator
    from tunefleet.compiler.toolchain import load_tvm

    theirs = set(Translator(load_tvm().relax.BlockBuilder()).convert_map)
    # What a namespace of torch lists are only those that somebody asked for.
    known = torch._C._dispatch_get_all_op_names()
    names = {name.removeprefix("aten::") for name in known if name.startswith("aten::")}
    overloads = {
        name if "." in name else f"{name}.default": _overload(torch.ops.aten, name)
        for name in names
    }
    usual = {str(o).removeprefix("aten.") for o in torch.export.default_decompositions()}
    further = {str(o).removeprefix("aten.") for o in (*decomposition_table, *DECOMPOSITIONS)}
    for name, operator in sorted(overloads.items()):
        core = torch.Tag.core in operator.tags
        known_here = name in OPERATORS or operator in RULES or operator in DECOMPOSITIONS
        if not core and name not in theirs and not known_here:
            continue
        if name in OPERATORS or (operator in RULES and name not in theirs):
            yield Operator(name, OperatorSupport.OURS)
        elif torch.Tag.nondeterministic_seeded in operator.tags:
            yield Operator(name, OperatorSupport.STAYS, IS_RANDOM)
        elif name in usual:
            yield Operator(name, OperatorSupport.WRITTEN_OUT)
        elif name in theirs:
            yield Operator(name, OperatorSupport.TVM)
        elif name in further:
            yield Operator(name, OperatorSupport.WRITTEN_OUT)
        else:
            yield Operator(name, OperatorSupport.STAYS, "TVM has no conversion for it")
    for name in sorted(OF_PACKAGES):
        yield Operator(name, OperatorSupport.OURS)


def _overload(namespace: Any, name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(namespace, packet), overload or "default")


def tflite_operators() -> Iterator[Operator]:
    """TFLite's builtin operators."""
    from tunefleet.compiler.frontends.tflite_graph import operators

    for name, ours in operators().items():
        if ours is None:
            yield Operator(name, OperatorSupport.REFUSED, "unless what it gives is constant")
        else:
            yield Operator(name, OperatorSupport.OURS if ours else OperatorSupport.TVM)
