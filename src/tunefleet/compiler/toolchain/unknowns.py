"""What is not a number (NaN) stays that through a maximum or minimum, where it costs nothing.

TVM's maximum takes its second operand where the first is not larger, thus where either is not a
number: a relu, which has its constant second, would make zero of it. Frameworks let it through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tunefleet.compiler.toolchain.last_passes import finish_with

#: A function for `tvm_ffi.structural_mutate`.
Rule = Callable[[Any, Any], Any]


def use_unknowns() -> None:
    """From here on, code that this process makes for a processor lets it through. Call once per
    process, after TVM was imported.

    It is the last step of lowering: programs, and the names of tasks that are made of them, are as
    before. Code for a GPU is not changed: its maximum takes a number where there is one.
    """
    finish_with(_let_through())


def _let_through() -> Any:
    import tvm_ffi
    from tvm import tirx

    def rewritten(function: Any, _module: Any, _context: Any) -> Any:
        rule = _rule(function.attrs["target"])
        if rule is None:
            return function
        rules = [(tirx.Cast, _as_it_is), ((tirx.Max, tirx.Min), rule)]
        return function.with_body(tvm_ffi.structural_mutate(function.body, rules))

    return tirx.transform.prim_func_pass(rewritten, opt_level=0, name="LetUnknownsThrough")


def _rule(target: Any) -> Rule | None:
    """How a target has it in the same number of instructions; None where it would take more."""
    from tvm.target import codegen

    triple = str(target.attrs.get("mtriple", "") or codegen.llvm_get_system_triple())
    machine = triple.partition("-")[0]
    if machine == "aarch64":
        return _of_arm
    # Before AVX the result takes the place of the first operand, and constants would be copied.
    return _constant_first if codegen.target_has_features("avx", target) else None


def _as_it_is(cast: Any, mutator: Any) -> Any:
    """All that an integer is made of: an index is within its bounds by it, and what is not a number
    has no integer."""
    return mutator.default_mutate(cast) if "float" in str(cast.ty) else cast


def _constant_first(extreme: Any, mutator: Any) -> Any:
    """x86 has TVM's maximum as an instruction. With the constant first, its second operand is the
    number itself."""
    extreme = mutator.default_mutate(extreme)
    if _is_number(extreme.a) or not _is_number(extreme.b):
        return extreme
    return type(extreme)(extreme.b, extreme.a)


def _of_arm(extreme: Any, mutator: Any) -> Any:
    """ARM has the maximum of frameworks as an instruction, beside the one that LLVM makes of
    TVM's."""
    from tvm import tirx

    extreme = mutator.default_mutate(extreme)
    if not str(extreme.ty).startswith("float"):
        return extreme
    name = "llvm.maximum" if isinstance(extreme, tirx.Max) else "llvm.minimum"
    return tirx.call_llvm_pure_intrin(extreme.ty, name, extreme.a, extreme.b)


def _is_number(value: Any) -> bool:
    """Whether an expression is a constant of floats, of one or of all of a vector."""
    from tvm import tirx

    value = value.value if isinstance(value, tirx.Broadcast) else value
    return isinstance(value, tirx.FloatImm) and not math.isnan(value.value)
