"""Programs in complex numbers, written in real ones.

Neither NumPy's interchange nor TVM has complex tensors. A complex tensor becomes its pairs: a real
one with another, last axis of two, as `view_as_real` gives it. Operators without a rule stay
complex between two views, and so in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten


class NoPairsError(Exception):
    """A form of an operator that is not written in real numbers."""


def in_pairs(
    program: ExportedProgram, rules: dict[Any, Callable[[Pairs, Node], Any]]
) -> ExportedProgram:
    """The decomposed program with what depends on its inputs in real numbers, in place.

    A rule writes the operator of a node: of a complex result it returns the pairs, of a real one
    the result.
    """
    if any(_is_complex(node) for node in program.graph.nodes):
        Pairs(program).write(rules)
        program.graph_module.recompile()
    return program


def _is_complex(node: Any) -> bool:
    return isinstance(node, Node) and any(
        isinstance(value, Tensor) and value.is_complex()
        for value in pytree.tree_leaves(node.meta.get("val"))
    )


class Pairs:
    """Writes the complex operators of one program in real ones."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._graph = program.graph
        self._pairs: dict[Node, Node] = {}
        self._constants: dict[Any, Node] = {}

    def write(self, rules: dict[Any, Callable[[Pairs, Node], Any]]) -> None:
        varies = set(self._program.graph_signature.user_inputs)
        for node in list(self._graph.nodes):
            if node.op == "placeholder" or not any(n.name in varies for n in node.all_input_nodes):
                continue  # what is constant is folded by torch
            varies.add(node.name)
            if not any(map(_is_complex, (node, *node.all_input_nodes))):
                continue
            with self._graph.inserting_before(node):
                written = self._written(node, rules)
            if written is None:
                self._keep(node)
            elif _is_complex(node):
                self._pairs[node] = written
            else:
                node.replace_all_uses_with(written)
                varies.add(written.name)

    def _written(self, node: Node, rules: dict[Any, Callable[[Pairs, Node], Any]]) -> Node | None:
        rule = rules.get(node.target)
        if rule is None or node.op != "call_function":
            return None
        try:
            written: Node = rule(self, node)
        except NoPairsError:
            return None
        return written

    def _keep(self, node: Node) -> None:
        """Leaves an operator complex, between views of what goes in and comes out."""
        with self._graph.inserting_before(node):
            given = {
                n: self.call(aten.view_as_complex.default, self._pairs[n])
                for n in node.all_input_nodes
                if n in self._pairs
            }
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: given.get(n, n))
        node.args, node.kwargs = args, kwargs
        if isinstance(node.meta.get("val"), Tensor) and _is_complex(node):
            with self._graph.inserting_after(node):
                self._pairs[node] = self.call(aten.view_as_real.default, node)

    def of(self, x: Any, like: Node | None = None) -> Node:
        """The pairs of a complex tensor, of a real one or of a number beside `like`; of an operator
        with several results a list of them."""
        if not isinstance(x, Node):
            parts = torch.view_as_real(torch.tensor(x, dtype=torch.complex128))
            return self.constant(("number", complex(x)), lambda: parts, like)
        if x in self._pairs:
            return self._pairs[x]
        if isinstance(x.meta["val"], tuple | list):
            raise NoPairsError
        if not x.meta["val"].is_complex():
            return self.joined(x, self.zeros(x))
        return self.call(aten.view_as_real.default, self.call(aten.resolve_conj.default, x))

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A node of an operator, with what torch says of its result."""
        node: Node = self._graph.call_function(target, args, kwargs)
        values: Any = map_arg((args, kwargs), lambda n: n.meta["val"])
        node.meta["val"] = target(*values[0], **values[1])
        return node

    def part(self, pairs: Node, index: int) -> Node:
        """The real parts (0) or the imaginary ones (1)."""
        return self.call(aten.select.int, pairs, rank_of(pairs) - 1, index)

    def joined(self, real: Node, imaginary: Node) -> Node:
        """Pairs of two tensors of one shape."""
        rank = rank_of(real)
        lifted = [self.call(aten.unsqueeze.default, x, rank) for x in (real, imaginary)]
        return self.call(aten.cat.default, lifted, rank)

    def product(self, left: Node, right: Node) -> Node:
        """Pairs multiplied element by element."""
        (a, b), (c, d) = ([self.part(x, i) for i in (0, 1)] for x in (left, right))
        real = self.call(aten.sub.Tensor, self.times(a, c), self.times(b, d))
        return self.joined(real, self.call(aten.add.Tensor, self.times(a, d), self.times(b, c)))

    def times(self, left: Node, right: Node) -> Node:
        return self.call(aten.mul.Tensor, left, right)

    def conjugate(self, pairs: Node) -> Node:
        imaginary = self.call(aten.neg.default, self.part(pairs, 1))
        return self.joined(self.part(pairs, 0), imaginary)

    def squares(self, pairs: Node) -> Node:
        """The squared absolute values."""
        a, b = self.part(pairs, 0), self.part(pairs, 1)
        return self.call(aten.add.Tensor, self.times(a, a), self.times(b, b))

    def zeros(self, like: Node) -> Node:
        """As many as `like` has."""
        zero = self.constant("zero", lambda: torch.zeros(()), like)
        return self.call(aten.expand.default, zero, extents_of(like))

    def constant(self, key: Any, made: Callable[[], Tensor], like: Node | None) -> Node:
        """A constant of the program in the precision of `like`, made once for each `key`."""
        if like is None:
            raise NoPairsError
        value = like.meta["val"]
        dtype = value.dtype.to_real() if value.is_complex() else value.dtype
        if (key, dtype) not in self._constants:
            self._constants[key, dtype] = self._lifted(made().to(dtype), value.fake_mode)
        return self._constants[key, dtype]

    def _lifted(self, value: Tensor, mode: Any) -> Node:
        first: Node = next(iter(self._graph.nodes))
        name = f"transform_{len(self._constants)}"
        while name in self._program.constants:
            name += "_"
        with self._graph.inserting_before(first):
            node: Node = self._graph.placeholder(name)
        node.meta["val"] = mode.from_tensor(value, static_shapes=True)
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name)
        self._program.graph_signature.input_specs.insert(0, spec)
        self._program.constants[name] = value
        return node


def rank_of(node: Node) -> int:
    """How many axes a tensor has."""
    return int(node.meta["val"].dim())


def extents_of(node: Node) -> list[int]:
    """The static shape of a tensor; NoPairsError where it depends on values."""
    extents = node.meta["val"].shape
    if not all(isinstance(extent, int) for extent in extents):
        raise NoPairsError
    return list(extents)
