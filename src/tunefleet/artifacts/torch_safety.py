"""Opens strangers' `.pt2` files without running what is in them.

torch reads parts of such a file as pickle, evaluates symbolic extents as Python, calls any
function of its own that a node names, and compiles guards written as source. Here pickle holds
tensors alone, extents are arithmetic, nodes call operators, guards are left out, and libraries are
refused.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._export.serde import serialize
from torch.export.pt2_archive import _package
from torch.utils._sympy import functions

from tunefleet.errors import InputError, foreign

_CURE = "export the model again with tensors alone as constants, or --trust who made it"
#: Where the functions are that torch.export leaves of torch.vmap.
PREDISPATCH = "torch._functorch.predispatch"
_CURE_OF_VMAP = "save what the program's run_decompositions({}) returns, or --trust who made it"

#: Places of compiled libraries, and of objects that are nothing but pickle.
_LIBRARIES = "data/aotinductor/"
_OBJECTS = re.compile(r"data/constants/(custom|opaque)_obj_")
_PROGRAMS = "models/"

#: What torch calls its symbols (s77, u0, zuf3), and how it writes numbers as text.
_SYMBOL = re.compile(r"[a-z]{1,4}\d+")
#: Functions of numbers that torch makes: OpaqueUnaryFn_log2.
_MADE = re.compile(r"(OpaqueUnaryFn|BitwiseFn)_\w+")
_WORD = re.compile(r"[\w.+\-]*")
#: What an extent is made of, besides torch's own functions of extents.
_FUNCTIONS = {
    *functions.__all__,
    "Abs", "Add", "And", "Equality", "Eq", "ExprCondPair", "Float", "Ge", "GreaterThan", "Gt",
    "Half", "Integer", "Le", "LessThan", "Lt", "Max", "Min", "Mod", "Mul", "Ne", "NegativeOne",
    "Not", "One", "Or", "Piecewise", "Pow", "Rational", "StrictGreaterThan", "StrictLessThan",
    "Symbol", "Unequality", "Zero", "ceiling", "false", "floor", "int_oo", "oo", "sqrt", "true",
}  # fmt: skip
_ARITHMETIC = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Tuple,
)  # fmt: skip
#: Functions of a number and of an exponent.
_POWERS = {"Pow", "PowByNatural", "FloatPow", "LShift", "RShift", "RoundDecimal"}
#: All exponents of an extent, multiplied: what powers of powers come to. Digits of a float.
_MOST_POWER, _MOST_DIGITS = 4096, 4096
_SCALAR_FUNCTIONS = {*serialize._SYM_OPS, operator.getitem}
_MODULES = {"_operator": operator, "torch": torch, "math": math}
_OPERATORS = (
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    torch._ops.HigherOrderOperator,
)

_loading = threading.Lock()


def check_archive(reader: Any, path: Path) -> None:
    """Raises InputError where opening the archive would run code of the file.

    `reader` is torch's own: another might see other records in the same bytes.
    """
    names = reader.get_all_records()
    if any(name.startswith(_LIBRARIES) for name in names):
        raise InputError(f"{path} holds compiled code (AOTInductor)", cure="give torch.export's")
    objects = [name for name in names if _OBJECTS.match(name)]
    if objects:
        raise InputError(f"{path} holds objects as pickle ({objects[0]})", cure=_CURE)
    for name in names:
        if name.startswith(_PROGRAMS):
            with foreign():
                program = json.loads(reader.get_record(name))
            reason = _dangerous(program)
            if reason:
                cure = _CURE_OF_VMAP if PREDISPATCH in reason else _CURE
                raise InputError(f"{path} would run code: {reason}", cure=cure)


def _dangerous(program: Any) -> str:
    """What in a program as JSON is no operator and no arithmetic; "" where there is nothing."""
    for each in dictionaries(program):
        nodes = each.get("nodes")
        called = [n.get("target") for n in nodes or () if isinstance(n, dict)]
        for target in (*called, each.get("as_operator")):
            if isinstance(target, str) and not _is_operator(target):
                return f"a node calls {target[:80]!r}"
        extent = each.get("expr_str")
        if isinstance(extent, str) and not _is_arithmetic(extent):
            return f"an extent is {extent[:80]!r}"
    return ""


def dictionaries(program: Any) -> Iterator[dict[str, Any]]:
    """All of them in a program as JSON, however deep."""
    waiting = [program]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            waiting += each.values()
            yield each


def _is_operator(target: str) -> bool:
    """Whether torch takes a node's target for an operator, or for a function of scalars that it
    writes itself."""
    root, *names = target.split(".")
    if root.startswith("#"):
        return False
    named: Any = next((m for prefix, m in _MODULES.items() if root.startswith(prefix)), None)
    if named is None:
        return True  # stays a name that nothing calls
    if target.startswith("torch.ops."):
        if hasattr(type(torch.ops), names[1]):
            return False  # load_library, import_module
        names, named = names[1:], torch.ops
    for name in names:
        if not hasattr(named, name):
            return True  # stays a name too
        named = getattr(named, name)
    return isinstance(named, _OPERATORS) or (callable(named) and named in _SCALAR_FUNCTIONS)


def _is_arithmetic(extent: str) -> bool:
    """Whether Python that torch evaluates is an expression of numbers, symbols and functions of
    these: no attributes, no subscripts, no other names."""
    try:
        nodes = list(ast.walk(ast.parse(extent, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if not _ends(nodes):
        return False
    return all(isinstance(node, _ARITHMETIC) and _is_harmless(node) for node in nodes)


def _ends(nodes: list[ast.AST]) -> bool:
    """Whether arithmetic can be evaluated at all, which 9**9**9 cannot."""
    powers = [e for n in nodes for e in (*_shifts(n), *_further_arguments(n, _POWERS))]
    digits = [e for node in nodes for e in _further_arguments(node, {"Float"})]
    return math.prod(map(_size, powers)) <= _MOST_POWER and all(
        _size(each) <= _MOST_DIGITS for each in digits
    )


def _shifts(node: ast.AST) -> list[ast.expr]:
    """What a node raises to the power of, or shifts by."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.LShift):
        return [node.right]
    return []


def _further_arguments(node: ast.AST, functions: set[str]) -> list[ast.expr]:
    """What one of the functions is called with, but for its first argument."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
        return [*node.args[1:], *(keyword.value for keyword in node.keywords)]
    return []


def _size(exponent: ast.expr) -> float:
    """How large an exponent is; what is no number and no symbol counts as infinite."""
    if isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    if isinstance(exponent, ast.Call) and isinstance(exponent.func, ast.Name):
        if exponent.func.id == "Symbol":
            return 1.0
        # Integer(2), Rational(1, 2): their first argument is the larger one, or they are below 1.
        is_number = exponent.func.id in ("Integer", "Rational", "Float") and exponent.args
        return _size(exponent.args[0]) if is_number else math.inf
    if isinstance(exponent, ast.Constant):
        try:
            return max(1.0, abs(float(exponent.value)))  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            return math.inf
    return 1.0 if isinstance(exponent, ast.Name) else math.inf


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name)
    if isinstance(node, ast.Name):
        known = node.id in _FUNCTIONS or _MADE.fullmatch(node.id) or _SYMBOL.fullmatch(node.id)
        return bool(known)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _WORD.fullmatch(node.value) is not None
    return True


class _Refused(InputError):
    """What is neither a tensor nor a plain collection of them."""


@contextmanager
def without_pickle(path: Path) -> Iterator[None]:
    """Lets torch read tensors alone wherever it reads pickle; example inputs of other types are
    left out. One file at a time is opened so."""
    load = torch.load

    def tensors(*args: Any, **kwargs: Any) -> Any:
        try:
            return load(*args, **{**kwargs, "weights_only": True})
        except Exception as error:
            raise _Refused(f"{path} holds objects as pickle", cure=_CURE) from error

    def examples(serialized: Any) -> Any:
        try:
            return artifact(serialized)
        except _Refused:
            return {}

    artifact = serialize.deserialize_torch_artifact
    package: Any = _package
    with _loading:
        torch.load, serialize.deserialize_torch_artifact = tensors, examples
        pickle, package.pickle = package.pickle, None
        try:
            yield
        finally:
            torch.load, serialize.deserialize_torch_artifact = load, artifact
            package.pickle = pickle
