"""Operators of ai.onnx.ml that stand before and behind networks in pipelines of other learners."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant, relax, shape_of

op = relax.op

ML = "ai.onnx.ml"


def _scaler(node: Node) -> Any:
    """(x - offset) * scale, each one number or one for each column."""
    x = _floats(node)
    for name, change in (("offset", op.subtract), ("scale", op.multiply)):
        numbers = node.attrs.get(name)
        if numbers:
            x = node.emit(change(x, constant(numbers, "float32")))
    return x


def _normalizer(node: Node) -> Any:
    """Rows by their norm; those of zeros stay."""
    x, kind = _floats(node), node.attrs.get("norm", "MAX")
    if kind == "L1":
        norm = op.sum(op.abs(x), -1, True)
    elif kind == "L2":
        norm = op.sqrt(op.sum(op.multiply(x, x), -1, True))
    else:
        norm = op.max(x, -1, True)
    norm = node.emit(norm)
    none = op.equal(norm, constant(0.0, "float32"))
    return op.divide(x, op.where(none, constant(1.0, "float32"), norm))


def _binarizer(node: Node) -> Any:
    above = op.greater(_floats(node), constant(node.attrs.get("threshold", 0.0), "float32"))
    return op.astype(node.emit(above), "float32")


def _columns(node: Node) -> Any:
    """The elements of the last axis at given places, in two dimensions at least."""
    x, places = node.inputs[:2]
    taken = node.emit(op.take(x, op.reshape(places, [-1]), len(node.shape(0)) - 1, mode="clip"))
    return op.reshape(taken, [1, *shape_of(taken)]) if len(node.shape(0)) == 1 else taken


def _linear(node: Node) -> Any:
    """LinearRegressor: a product with the coefficients of each target."""
    attrs = node.attrs
    if attrs.get("post_transform", "NONE") != "NONE":
        raise NotImplementedError(f"LinearRegressor with {attrs['post_transform']}")
    targets = int(attrs.get("targets", 1))
    weight = constant(attrs["coefficients"], "float32")
    weight = node.emit(op.permute_dims(op.reshape(weight, [targets, -1])))
    product = op.matmul(_floats(node), weight)
    intercepts = attrs.get("intercepts")
    return product + constant(intercepts, "float32") if intercepts else product


def _floats(node: Node) -> Any:
    x = node.inputs[0]
    return x if node.dtype(0) == "float32" else node.emit(op.astype(x, "float32"))


RULES: dict[tuple[str, str], Rule] = {
    (ML, "ArrayFeatureExtractor"): _columns,
    (ML, "Binarizer"): _binarizer,
    (ML, "LinearRegressor"): _linear,
    (ML, "Normalizer"): _normalizer,
    (ML, "Scaler"): _scaler,
}
