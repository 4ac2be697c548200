"""docs/bad-input.md is what the command says: the quick cases of `benchmarks/hostile.py` end as the
committed table has it, and the table counts all cases."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "bad-input.md"
BENCHMARK = ROOT / "benchmarks" / "hostile.py"

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


def benchmark(*options: str) -> str:
    ended = subprocess.run(
        [sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def lines_of(page: Path) -> list[tuple[str, str, int, str, str]]:
    """Category, example, number of inputs, exit code and message of each line of a page."""
    found = []
    category = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            category = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| example |"):
            name, inputs, code, said = line.removeprefix("| ").removesuffix(" |").split(" | ", 3)
            found.append((category, name, int(inputs), code, said))
    return found


def test_what_is_said_of_bad_input_is_what_the_page_says(tmp_path: Path) -> None:
    page, out = tmp_path / "page.md", tmp_path / "out.json"
    benchmark("--quick", "--json", str(out), "--table", str(page))
    rows = json.loads(out.read_text())["figures"]["rows"]
    assert len(rows) >= 12
    assert [row for row in rows if row["faults"]] == []
    committed = {(of, name): (code, said) for of, name, _, code, said in lines_of(PAGE)}
    assert {
        (of, name): (code, said) for of, name, _, code, said in lines_of(page)
    }.items() <= committed.items()


def test_the_page_counts_the_cases_that_there_are() -> None:
    cases = Counter(line.partition(": ")[0] for line in benchmark("--list").splitlines())
    counted: Counter[str] = Counter()
    for category, _, inputs, _, _ in lines_of(PAGE):
        counted[category] += inputs
    assert cases == counted


def test_a_mutation_depends_on_its_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    from hostile_changes import any_json

    content = json.dumps({"a": [1, {"b": 2}], "c": "x"}).encode()
    first, again = (
        [any_json(content, random.Random(number)) for number in range(5000)] for _ in range(2)
    )
    assert first == again
