"""Reads arguments and results of a node of an exported program."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten

#: Recurrent layers: (input, states, weights, ...).
RECURRENT = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
#: Of packed sequences: (rows, rows of each step, states, weights, ...).
PACKED = (aten.lstm.data, aten.gru.data)


def argument(node: Node, index: int, name: str, default: Any = None) -> Any:
    """An argument given by its place or by its name."""
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def dtype_of(node: Node) -> str:
    """The type of the first result, as Relax and NumPy call it."""
    value = node.meta["val"]
    value = value[0] if isinstance(value, tuple | list) else value
    return str(value.dtype).removeprefix("torch.")


def shape_of(node: Node) -> list[int]:
    """The static shape of the first result."""
    value = node.meta["val"]
    value = value[0] if isinstance(value, tuple | list) else value
    return [int(extent) for extent in value.shape]


def operators_of(module: GraphModule) -> str:
    """All that a program calls, as text: its own graph and those of its branches and loops."""
    parts = [(n, part) for n, part in module.named_modules() if isinstance(part, GraphModule)]
    return "\n".join(f"{name}: {part.graph}" for name, part in parts)


def flops_of(node: Node) -> float:
    """What an operator computes, as torch counts it; one operation for each element of its result
    where torch does not."""
    # A branch or a body that an operator calls is no value.
    values: Any = map_arg((node.args, node.kwargs), lambda operand: operand.meta.get("val"))
    args, kwargs = values
    result = node.meta.get("val")
    if node.target in (*RECURRENT, *PACKED):
        x, weights = args[0], args[2 if node.target in RECURRENT else 3]
        steps = x.numel() / x.shape[-1]
        return float(2 * steps * sum(w.numel() for w in weights if w.dim() > 1))
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is not None:
        return float(count(*args, **kwargs, out_val=result))
    results = result if isinstance(result, tuple | list) else [result]
    return float(sum(r.numel() for r in results if isinstance(r, torch.Tensor) and not _free(r)))


def _free(value: torch.Tensor) -> bool:
    return not all(isinstance(extent, int) for extent in value.shape)
