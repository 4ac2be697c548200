"""Conversions of ONNX operators into Relax that TVM's importer lacks, or makes wrong or slow.

`OPERATORS` is asked before TVM's own table. A module of this package holds the operators of one
family and a table `RULES` of them. `UNSOUND` names operators that TVM converts wrongly and nobody
here mends, with the reason: they stay in ONNX Runtime.
"""

from __future__ import annotations

from tunefleet.compiler.frontends.onnx_operators import (
    activations,
    attention,
    classical,
    contrib_attention,
    experts,
    few_bits,
    forms,
    integers,
    normalization,
    pooling,
    products,
    quantized,
    recurrent,
    resize,
    signal,
    windows,
)
from tunefleet.compiler.frontends.onnx_operators.forms import UNSOUND
from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule

__all__ = ["OPERATORS", "UNSOUND", "Node", "Rule"]

_FAMILIES = (
    activations,
    attention,
    classical,
    contrib_attention,
    experts,
    few_bits,
    forms,
    integers,
    normalization,
    pooling,
    products,
    quantized,
    recurrent,
    resize,
    signal,
    windows,
)

#: (domain, operator) -> rule; the standard domain is "".
OPERATORS: dict[tuple[str, str], Rule] = {
    operator: rule for family in _FAMILIES for operator, rule in family.RULES.items()
}
