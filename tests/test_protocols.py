"""A seam that others implement is small."""

from __future__ import annotations

import ast
from pathlib import Path

import tunefleet

PACKAGE = Path(tunefleet.__file__).parent
MOST_VERBS = 10


def verbs(source: str) -> dict[str, int]:
    """How many public functions each Protocol of a module declares."""
    counted = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and any(
            "Protocol" in ast.unparse(base) for base in node.bases
        ):
            functions = [n for n in node.body if isinstance(n, ast.FunctionDef)]
            counted[node.name] = sum(not n.name.startswith("_") for n in functions)
    return counted


def test_verbs_are_counted() -> None:
    declared = (
        "class P(Protocol[T]):\n def a(self): ...\n def _b(self): ...\nclass C:\n def c(self): ..."
    )
    assert verbs(declared) == {"P": 1}


def test_no_protocol_has_more_than_ten_verbs() -> None:
    counted = {
        (path.name, name): count
        for path in PACKAGE.rglob("*.py")
        for name, count in verbs(path.read_text(encoding="utf-8")).items()
    }
    assert {name for _, name in counted} >= {
        "Jobs",
        "StoredWork",
        "StoredRecords",
        "Coordination",
        "Store",
    }
    assert {name: count for name, count in counted.items() if count > MOST_VERBS} == {}
