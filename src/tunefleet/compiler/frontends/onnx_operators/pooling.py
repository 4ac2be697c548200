"""Pooling in the forms that TVM converts wrongly."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.frontends.onnx_operators.delegate import by_tvm
from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule


def _pool(node: Node) -> Any:
    """TVM pads for SAME_LOWER by other numbers: they are written out."""
    if node.wants(1):
        raise NotImplementedError(f"{node.operator} that gives out its positions")
    if node.attrs.get("auto_pad", "NOTSET") not in ("SAME_LOWER", "SAME_UPPER"):
        return NotImplemented
    if any(dilation != 1 for dilation in node.attrs.get("dilations") or ()):
        raise NotImplementedError(
            f"{node.operator} by SAME with dilations, which runtimes differ in"
        )
    return by_tvm(node, node.operator, node.inputs, _padded(node))


def _padded(node: Node) -> dict[str, Any]:
    """The attributes with the padding instead of its rule."""
    attrs = {k: v for k, v in node.attrs.items() if k not in ("auto_pad", "ceil_mode", "dilations")}
    spatial, kernel = node.shape(0)[2:], attrs["kernel_shape"]
    strides = attrs.get("strides") or [1] * len(spatial)
    less, more = [], []
    for extent, taps, stride in zip(spatial, kernel, strides, strict=True):
        reach = (-(-extent // stride) - 1) * stride + taps
        total = max(reach - extent, 0)
        less.append(total // 2)
        more.append(total - total // 2)
    upper = node.attrs["auto_pad"] == "SAME_UPPER"
    attrs["pads"] = [*less, *more] if upper else [*more, *less]
    return attrs


def _lp_pool(node: Node) -> Any:
    if node.attrs.get("ceil_mode", 0):
        raise NotImplementedError("LpPool with ceil_mode")
    return _pool(node)


def _max_unpool(node: Node) -> Any:
    if node.has(2):
        raise NotImplementedError("MaxUnpool with the shape of its output")
    return NotImplemented


RULES: dict[tuple[str, str], Rule] = {
    ("", "AveragePool"): _pool,
    ("", "LpPool"): _lp_pool,
    ("", "MaxPool"): _pool,
    ("", "MaxUnpool"): _max_unpool,
}
