"""A limit on what is fused into one program.

A schedule inlines elementwise programs into their readers. A reader that uses its operand several
times repeats it as often, so the inlined expression may grow exponentially with the chain: 16
additions of a tensor to itself took TVM's simplifier 12 s, two of the steps that compute `erfinv`
had no end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm_ffi

from tunefleet.compiler.graph.rewriting import operands
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

#: Maximum nodes of an inlined expression. 4,000 compile in 0.3 s, 33,000 in 2.3 s, 131,000 in 12 s
#: (additions of a tensor to itself, one core). Those of the networks of the zoo have up to 100.
_MOST_NODES = 4_000
#: TVM's kinds of programs (`op_pattern`): up to `_INJECTIVE` each element depends on single
#: elements; nothing is fused with `_OPAQUE` ones.
_INJECTIVE, _OPAQUE = 2, 8

_CALL = tvm.ir.Op.get("relax.call_tir")


@dataclass(frozen=True, slots=True)
class _Size:
    """Nodes of a program's expression by itself, and how often it contains each argument."""

    nodes: int
    uses: Counter[int]

    def inlined(self, sizes: list[int]) -> int:
        return self.nodes + sum(count * sizes[i] for i, count in self.uses.items())


def limited_fusion(mod: Any) -> Any:
    """`mod` (legalised, with `op_pattern`) where programs are opaque to FuseOps that would grow too
    large with those they are fused with."""
    main = mod["main"]
    cut = _cut(mod, main)
    if not cut:
        return mod
    builder, opaque = relax.BlockBuilder(mod), dict[Any, Any]()

    def alone(binding: Any) -> Any:
        if binding.var not in cut:
            return binding
        call, (program, *operands) = binding.value, binding.value.args
        if program not in opaque:
            function = mod[program].with_attr("op_pattern", _OPAQUE)
            opaque[program] = builder.add_func(function, str(program.name_hint))
        called = relax.Call(call.op, [opaque[program], *operands], call.attrs, call.ty_args)
        return relax.VarBinding(binding.var, builder.normalize(called))

    blocks = [type(block)([alone(b) for b in block.bindings]) for block in main.body.blocks]
    body = builder.normalize(relax.SeqExpr(blocks, main.body.body))
    function = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    builder.update_func(mod.get_global_var("main"), function)
    return builder.get()


def _cut(mod: Any, main: Any) -> set[Any]:
    """The variables of the programs that are to be opaque."""
    calls = {b.var: b.value for b in _bindings(main) if _is_program(b.value)}
    injective = {v for v, call in calls.items() if _pattern(mod, call) <= _INJECTIVE}
    # What others read as well is kept in memory.
    kept = {x for b in _bindings(main) if b.var not in injective for x in operands(b.value)}
    known: dict[Any, _Size] = {}
    sizes: dict[Any, int] = {}
    cut: set[Any] = set()
    for var, call in calls.items():
        if var not in injective:
            continue
        program = call.args[0]
        if program not in known:
            known[program] = _size(mod[program])
        read = [sizes.get(x, 1) for x in operands(call)]
        size = known[program].inlined(read)
        if size > _MOST_NODES and any(each > 1 for each in read):
            cut.add(var)
        elif var not in kept:
            sizes[var] = size
    return cut


def _bindings(function: Any) -> Iterator[Any]:
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding, relax.VarBinding):
                yield binding


def _is_program(value: Any) -> bool:
    return isinstance(value, relax.Call) and value.op == _CALL


def _pattern(mod: Any, call: Any) -> int:
    attrs = mod[call.args[0]].attrs
    return int(attrs["op_pattern"]) if attrs and "op_pattern" in attrs else _OPAQUE


def _size(program: Any) -> _Size:
    """Of what the program stores last, with its own blocks inlined."""
    arguments = {argument: index for index, argument in enumerate(program.params)}
    stores: list[Any] = []
    tvm_ffi.structural_walk(program.body, [(tirx.BufferStore, stores.append)])
    sizes: dict[Any, _Size] = {}
    for store in stores:
        nodes: list[Any] = []
        tvm_ffi.structural_walk(store.value, [(tirx.Expr, nodes.append)])
        size = _Size(0, Counter())
        for node in nodes:
            source = node.source if isinstance(node, tvm.ir.expr.TensorLoad) else None
            if source in sizes:
                size = _Size(size.nodes + sizes[source].nodes, size.uses + sizes[source].uses)
            elif source in arguments:
                size.uses[arguments[source]] += 1
            else:
                size = _Size(size.nodes + 1, size.uses)
        sizes[store.buffer] = size
    return sizes[stores[-1].buffer] if stores else _Size(1, Counter())
