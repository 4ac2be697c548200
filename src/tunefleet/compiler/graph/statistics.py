"""Variances and normalisations that hold where the mean is far above the deviation.

A mean is that of the differences from one of the elements, a variance that of the differences from
the mean. TVM's group and instance normalisation subtract the square of the mean from the mean of
the squares, and its sums lose the digits of a large mean after some thousand elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
te, tirx = tvm.te, tvm.tirx

#: Elements up to which TVM's layer normalisation, which takes its sum as it is, is exact enough.
_FEW = 4096


def variance(builder: Any, call: Any) -> Any:
    """The definition of relax.variance."""
    return _reduced(builder, call, "variance", lambda x: x)


def deviation(builder: Any, call: Any) -> Any:
    """The definition of relax.std."""
    return _reduced(builder, call, "std", tirx.sqrt)


def layer_norm(builder: Any, call: Any) -> Any:
    """The definition of relax.nn.layer_norm."""
    shape = ints(call.args[0].ty.shape.values)
    axes = [axis % len(shape) for axis in ints(call.attrs.axes)]
    if math.prod(shape[axis] for axis in axes) <= _FEW:
        return tvm.ir.Op.get("relax.nn.layer_norm").get_attr("FLegalize")(builder, call)
    return _normalised(builder, call, "layer_norm", _Sets(shape, axes), axes)


def group_norm(builder: Any, call: Any) -> Any:
    """The definition of relax.nn.group_norm."""
    shape, attrs = ints(call.args[0].ty.shape.values), call.attrs
    channel = int(attrs.channel_axis) % len(shape)
    axes = [axis % len(shape) for axis in ints(attrs.axes)]
    sets = _Sets(shape, axes, channel, int(attrs.num_groups))
    return _normalised(builder, call, "group_norm", sets, [channel])


def instance_norm(builder: Any, call: Any) -> Any:
    """The definition of relax.nn.instance_norm."""
    shape, attrs = ints(call.args[0].ty.shape.values), call.attrs
    sets = _Sets(shape, [axis % len(shape) for axis in ints(attrs.axes)])
    return _normalised(builder, call, "instance_norm", sets, [int(attrs.channel_axis) % len(shape)])


@dataclass(frozen=True, slots=True)
class _Sets:
    """The sets of elements of a tensor that have a mean each: all along `axes`, and along the axis
    `channel`, if there is one, those of each of `groups`."""

    shape: Sequence[int]
    axes: Sequence[int]
    channel: int | None = None
    groups: int = 1

    @property
    def extents(self) -> list[int]:
        """Of a tensor with an element for each set: the axes stay."""
        ones = [1 if axis in self.axes else extent for axis, extent in enumerate(self.shape)]
        return [self.groups if axis == self.channel else n for axis, n in enumerate(ones)]

    @property
    def size(self) -> int:
        return math.prod(self.shape) // max(1, math.prod(self.extents))

    def of(self, place: Sequence[Any]) -> list[Any]:
        """The set of the element at `place`."""
        inside = [0 if axis in self.axes else at for axis, at in enumerate(place)]
        return [
            at // self._in_group if axis == self.channel else at for axis, at in enumerate(inside)
        ]

    @property
    def _in_group(self) -> int:
        return 1 if self.channel is None else self.shape[self.channel] // self.groups

    def average(self, name: str, element: Callable[[list[Any], Sequence[Any]], Any]) -> Any:
        """For each set the mean of what `element` makes of the place of an element, and its set."""

        def total(*chosen: Any) -> Any:
            steps = {a: te.reduce_axis((0, self.shape[a]), f"k{a}") for a in sorted(set(self.axes))}
            place = [steps.get(axis, at) for axis, at in enumerate(chosen)]
            if self.channel is not None:
                step = te.reduce_axis((0, self._in_group), f"k{self.channel}")
                steps[self.channel] = step
                place[self.channel] = chosen[self.channel] * self._in_group + step
            return te.sum(element(place, chosen), axis=list(steps.values()))

        sums = te.compute(self.extents, total, name=f"{name}_sum")
        return te.compute(self.extents, lambda *at: sums(*at) / self.size, name=name)

    def _begin(self, x: Any, chosen: Sequence[Any]) -> Any:
        """The first element of a set."""
        first = list(chosen)
        if self.channel is not None:
            first[self.channel] = first[self.channel] * self._in_group
        return _wide(x(*first))

    def away(self, x: Any) -> Any:
        """How far the mean of each set is from its first element: differences of numbers near one
        another are exact. In float32 at least."""
        if not math.prod(self.extents) or not self.size:
            raise NotImplementedError("a variance of nothing")
        return self.average("away", lambda at, chosen: _wide(x(*at)) - self._begin(x, chosen))

    def mean(self, x: Any, away: Any, chosen: Sequence[Any]) -> Any:
        return self._begin(x, chosen) + away(*chosen)

    def variances(self, x: Any, away: Any) -> Any:
        """The variance of each set."""
        means = te.compute(self.extents, lambda *at: self.mean(x, away, at), name="mean")

        def square(at: list[Any], chosen: Sequence[Any]) -> Any:
            difference = _wide(x(*at)) - means(*chosen)
            return difference * difference

        return self.average("variance", square)


def _wide(element: Any) -> Any:
    return element.astype("float32") if str(element.ty.dtype) == "float16" else element


def _reduced(builder: Any, call: Any, name: str, function: Callable[[Any], Any]) -> Any:
    """`function` of the variances along some axes."""
    (x,), attrs, shape = call.args, call.attrs, ints(call.args[0].ty.shape.values)
    axes = range(len(shape)) if attrs.axis is None else [a % len(shape) for a in ints(attrs.axis)]
    after, dtype = ints(call.ty.shape.values), str(call.ty.dtype)

    def compute(x: Any) -> Any:
        sets = _Sets(shape, list(axes))
        variances = sets.variances(x, sets.away(x))

        def element(*place: Any) -> Any:
            kept = iter(place)
            at = [0 if a in axes and not attrs.keepdims else next(kept) for a in range(len(shape))]
            return function(variances(*at)).astype(dtype)

        return te.compute(after, element, name=name)

    return builder.call_te(compute, x, primfunc_name_hint=name)


def _normalised(builder: Any, call: Any, name: str, sets: _Sets, scaled: Sequence[int]) -> Any:
    """Elements less their set's mean, over its deviation; scale and bias are along `scaled`.

    Means and deviations are programs of their own: in one with the elements most schedules compute
    them again for each, and nothing that follows is fused with it.
    """
    dtype, epsilon, x = str(call.ty.dtype), float(call.attrs.epsilon), call.args[0]

    def factor(x: Any, away: Any) -> Any:
        variances = sets.variances(x, away)
        return te.compute(
            sets.extents, lambda *at: tirx.rsqrt(variances(*at) + epsilon), name="factor"
        )

    def elements(x: Any, away: Any, factors: Any, scale: Any, bias: Any) -> Any:
        def element(*place: Any) -> Any:
            chosen, own = sets.of(place), [place[axis] for axis in scaled]
            normal = (_wide(x(*place)) - sets.mean(x, away, chosen)) * factors(*chosen)
            return (normal * _wide(scale(*own)) + _wide(bias(*own))).astype(dtype)

        return te.compute(sets.shape, element, name=name)

    away = builder.emit(builder.call_te(sets.away, x, primfunc_name_hint="mean"))
    factors = builder.emit(builder.call_te(factor, x, away, primfunc_name_hint="deviation"))
    return builder.call_te(elements, x, away, factors, *call.args[1:], primfunc_name_hint=name)
