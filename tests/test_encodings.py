"""Files are read and written in UTF-8, whatever the locale says: ruff finds `open`, not these."""

from __future__ import annotations

import ast
from pathlib import Path

import tunefleet


def test_every_text_names_its_encoding() -> None:
    package = Path(tunefleet.__file__).parent
    calls = [
        (path.relative_to(package), node.lineno, {keyword.arg for keyword in node.keywords})
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("read_text", "write_text")
    ]
    assert calls
    assert [call[:2] for call in calls if "encoding" not in call[2]] == []
