"""One module of a network at several shapes: a function for each, programs and weights shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunefleet.artifacts.network import entry_name
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax


def merged(modules: Sequence[Any]) -> Any:
    """One module of prepared ones, whose functions `main` get the names of their places.

    Programs that are equal become one.
    """
    if len(modules) == 1:
        return modules[0]
    builder = relax.BlockBuilder()
    for index, mod in enumerate(modules):
        renamed = {
            gvar: builder.add_func(function, str(gvar.name_hint))
            for gvar, function in mod.functions_items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        main = _Renamed(renamed).visit_expr(mod["main"])
        builder.add_func(main.with_attr("global_symbol", entry_name(index)), entry_name(index))
    return builder.get()


@relax.expr_functor.mutator
class _Renamed(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, names: dict[Any, Any]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var_(self, op: Any) -> Any:
        return self._names.get(op, op)
