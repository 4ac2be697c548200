"""Every name of TVM that the source uses exists in the TVM that is installed, in every branch.

TVM has no types, and a branch that no test runs may name what a new version no longer has. Chains
of attributes from `tvm` and its aliases are resolved, keywords of calls held against signatures,
and names of global functions looked up.

    python checks/tvm_names.py src
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LOADERS = {"load_tvm"}
_GLOBALS = {"get_global_func"}


class Names:
    """What stands for TVM and its parts in one file."""

    def __init__(self, tree: ast.Module, tvm: Any) -> None:
        self.known: dict[str, Any] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.known |= {a.asname or "tvm": tvm for a in node.names if a.name == "tvm"}
        # An alias of an alias needs another look.
        for _ in range(3):
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    found = self._value(node.value, tvm)
                    if found is not None:
                        self.known[node.targets[0].id] = found

    def _value(self, value: ast.expr, tvm: Any) -> Any:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return tvm if value.func.id in _LOADERS else None
        return self.resolved(value)[0]

    def resolved(self, node: ast.expr) -> tuple[Any, str]:
        """What a chain of attributes stands for, and the first name of it that does not exist."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found = self.known.get("tvm") if node.func.id in _LOADERS else None
        else:
            found = self.known.get(node.id) if isinstance(node, ast.Name) else None
        if found is None:
            return None, ""
        for part in reversed(parts):
            if not hasattr(found, part):
                return None, part
            found = getattr(found, part)
            if not (inspect.ismodule(found) or inspect.isclass(found)):
                return found, ""  # attributes of objects are known when it runs
        return found, ""


def problems(path: Path, tvm: Any) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = Names(tree, tvm)
    if not names.known:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            missing = names.resolved(node)[1]
            if missing:
                yield f"{path}:{node.lineno}: TVM has no {ast.unparse(node)}"
        if isinstance(node, ast.Call):
            yield from _wrong_call(path, node, names, tvm)


def _wrong_call(path: Path, call: ast.Call, names: Names, tvm: Any) -> Iterator[str]:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _GLOBALS and call.args:
        name = call.args[0]
        text = name.value if isinstance(name, ast.Constant) else None
        if isinstance(text, str) and tvm.get_global_func(text, allow_missing=True) is None:
            yield f"{path}:{call.lineno}: TVM has no global function {text!r}"
    function = names.resolved(call.func)[0]
    if function is None or not call.keywords:
        return
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in parameters:
            yield f"{path}:{call.lineno}: {ast.unparse(call.func)} takes no {keyword.arg!r}"


def main(folders: list[str]) -> int:
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]
    found = list(dict.fromkeys(line for file in files for line in problems(file, tvm)))
    print("\n".join(found) or f"names of TVM in {len(files)} files: all there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
