"""Reads arguments and results of a node of an exported program."""

from __future__ import annotations

from typing import Any

from torch.fx import Node


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
