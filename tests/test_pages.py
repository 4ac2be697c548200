"""`checks/pages.py` and the page that `checks/results_page.py` makes."""

from __future__ import annotations

import json
from pathlib import Path

import pages
import pytest
import results_page

ROOT = Path(__file__).parents[1]
CHECK = {"name": "calls", "value": "6 us", "bound": "<= 5", "kind": "aim", "ok": False}


def folder(root: Path, checks: list[dict[str, object]]) -> Path:
    """A project of one result, whose page of benchmarks is up to date."""
    results = root / "docs" / "results"
    results.mkdir(parents=True)
    result = {"command": "benchmarks/a.py", "processor": "EPYC", "date": "2026-11-27"}
    (results / "a.json").write_text(json.dumps(result | {"checks": checks}))
    (results / "page.json").write_text(
        json.dumps(
            {
                "benchmarks.md": {
                    "head": ["# Benchmarks"],
                    "sections": [{"title": "Calls", "results": ["a"]}],
                }
            }
        )
    )
    for name, text in results_page.pages(results).items():
        (root / "docs" / name).write_text(text)
    return root


def test_the_pages_of_this_project_have_no_faults() -> None:
    assert list(pages.faults(ROOT)) == []


def test_a_page_that_is_up_to_date_and_short_has_no_faults(tmp_path: Path) -> None:
    assert list(pages.faults(folder(tmp_path, [CHECK]))) == []


def test_a_missed_aim_is_shown_with_its_command_and_day(tmp_path: Path) -> None:
    page = (folder(tmp_path, [CHECK]) / "docs" / "benchmarks.md").read_text()
    row = "| calls | 6 us | aimed <= 5: **missed** | `benchmarks/a.py` | EPYC, 2026-11-27 |"
    assert row in page.splitlines()


def test_a_page_that_results_have_overtaken_is_a_fault(tmp_path: Path) -> None:
    root = folder(tmp_path, [CHECK])
    (root / "docs" / "benchmarks.md").write_text("# Benchmarks\n")
    (fault,) = pages.faults(root)
    assert fault.startswith("docs/benchmarks.md is not that of docs/results")


def test_a_page_that_is_too_long_is_a_fault(tmp_path: Path) -> None:
    root = folder(tmp_path, [CHECK | {"name": f"call {number}"} for number in range(300)])
    (fault,) = pages.faults(root)
    assert fault.startswith("docs/benchmarks.md has 306 lines, more than 300")


@pytest.mark.parametrize("link", ["nowhere.md", "docs/benchmarks.md#no-such-heading"])
def test_a_link_that_leads_nowhere_is_a_fault(link: str, tmp_path: Path) -> None:
    root = folder(tmp_path, [CHECK])
    (root / "README.md").write_text(f"See [there]({link}) and [here](docs/benchmarks.md#calls).\n")
    assert [f"README.md: the link {link} leads nowhere"] == list(pages.faults(root))


def test_a_result_that_no_section_has_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path, [CHECK])
    (root / "docs" / "results" / "b.json").write_text("{}")
    with pytest.raises(ValueError, match=r"files beside it differ: \['b'\]"):
        results_page.pages(root / "docs" / "results")


def test_a_bound_without_its_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="calls: bound, kind and ok belong together"):
        results_page.Check("calls", "6 us", bound="<= 5")
