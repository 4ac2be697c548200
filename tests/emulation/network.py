"""Runs a network's CUDA source on the CPU, kernel after kernel, with plain schedules
(`library.py` says what that shows)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulation.library import Library, need_compiler
from tunefleet.compiler.graph.forms import direct
from tunefleet.compiler.graph.tasks import call_counts, normalized
from tunefleet.compiler.space.spaces import plainly_scheduled
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

__all__ = ["Emulated", "need_compiler", "scheduled"]


def scheduled(mod: Any, target: Any) -> dict[str, Any]:
    """The programs of a prepared network by name, as their plain schedules make them."""
    return {
        str(variable.name_hint): plainly_scheduled(normalized(direct(function)), target)
        for variable, function in mod.functions_items()
        if str(variable.name_hint) in call_counts(mod)
    }


class Emulated:
    """A prepared network for a GPU. `change` is what is made of each CUDA source before it runs.
    Called with arrays, it gives the outputs, or raises an AssertionError that says what a thread
    did wrong."""

    def __init__(
        self, mod: Any, target: Any, folder: Path, change: Callable[[str], str] = str
    ) -> None:
        self._main = mod["main"]
        self._library = Library(scheduled(mod, target), target, folder, change)

    def __call__(self, *inputs: Any) -> list[Any]:
        known = dict(zip(self._main.params, map(np.ascontiguousarray, inputs), strict=True))
        for block in self._main.body.blocks:
            for binding in block.bindings:
                known[binding.var] = self._value(binding.value, known)
        result = self._value(self._main.body.body, known)
        return result if isinstance(result, list) else [result]

    def _value(self, expr: Any, known: dict[Any, Any]) -> Any:
        if isinstance(expr, relax.Var):
            return known[expr]
        if isinstance(expr, relax.Tuple):
            return [self._value(field, known) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value, known)[expr.index]
        if isinstance(expr, relax.Call) and str(expr.op.name) == "relax.call_tir":
            arguments = [self._value(a, known) for a in expr.args[1].fields]
            return self._library.run(str(expr.args[0].name_hint), arguments)
        if isinstance(expr, relax.Call):
            shape = [int(extent) for extent in expr.ty.shape.values]
            return self._value(expr.args[0], known).reshape(shape)
        return np.ascontiguousarray(expr.value.numpy())
