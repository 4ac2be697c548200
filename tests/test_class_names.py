"""A public class is known by its name alone: no two modules declare one of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tunefleet"


def declared(package: Path) -> dict[str, list[str]]:
    """The modules that declare a public class, by its name."""
    modules = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(path.relative_to(package).as_posix())
    return modules


def test_no_two_public_classes_have_one_name() -> None:
    shared = {name: found for name, found in declared(PACKAGE).items() if len(found) > 1}
    assert shared == {}


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text("class Task: ...\n\n\nclass _Own: ...\n")
    assert declared(tmp_path) == {"Task": ["first.py", "second.py"]}
