"""A public type is known by its name alone: no two modules declare classes of one name, and no
alias has the name of a class. The aliases of `cli/` are options, called by what they give."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tunefleet"


def declared(package: Path) -> dict[str, list[str]]:
    """The modules that declare a public class, by its name."""
    modules = defaultdict(list)
    for module, node in _statements(package):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            modules[node.name].append(module)
    return modules


def aliases(package: Path) -> dict[str, list[str]]:
    """The modules outside of `cli/` that give a name to a type, or to what stands for one."""
    modules = defaultdict(list)
    for module, node in _statements(package):
        match node:
            case ast.Assign([ast.Name(name)], _) | ast.AnnAssign(ast.Name(name), _):
                if not module.startswith("cli/"):
                    modules[name].append(module)
    return modules


def _statements(package: Path) -> list[tuple[str, ast.stmt]]:
    return [
        (path.relative_to(package).as_posix(), node)
        for path in sorted(package.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
    ]


def test_no_two_public_classes_have_one_name() -> None:
    shared = {name: found for name, found in declared(PACKAGE).items() if len(found) > 1}
    assert shared == {}


def test_no_alias_has_the_name_of_a_class() -> None:
    classes, named = declared(PACKAGE), aliases(PACKAGE)
    shared = {name: [*classes[name], *named[name]] for name in classes.keys() & named.keys()}
    assert shared == {}


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text("class Task: ...\n\n\nclass _Own: ...\n")
    assert declared(tmp_path) == {"Task": ["first.py", "second.py"]}


def test_aliases_are_found(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "options.py").write_text("Home = Path | None\n")
    (tmp_path / "first.py").write_text("Task = tuple[int, ...]\nKey: TypeAlias = str\n")
    assert aliases(tmp_path) == {"Task": ["first.py"], "Key": ["first.py"]}
