"""Pages: none is too long, those of benchmarks are made of docs/results, links lead somewhere.

python checks/pages.py [FOLDER]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import results_page

_ROOT = Path(__file__).resolve().parents[1]
#: Lines of a page at most.
_LONGEST = {"README.md": 150, "docs/benchmarks.md": 300}
_LONGEST_OF_DOCS = 400
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```|`[^`]*`", re.MULTILINE | re.DOTALL)


def faults(root: Path) -> Iterator[str]:
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    for path in pages:
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        most = _longest(name)
        if most is not None and lines > most:
            yield f"{name} has {lines} lines, more than {most}: move what is for another reader"
        for link in _LINK.findall(_CODE.sub("", text)):
            if "://" not in link and not _leads_somewhere(path, link):
                yield f"{name}: the link {link} leads nowhere"
    for name, text in results_page.pages(root / "docs" / "results").items():
        if (root / "docs" / name).read_text(encoding="utf-8") != text:
            yield f"docs/{name} is not that of docs/results: python checks/results_page.py"


def _longest(name: str) -> int | None:
    return _LONGEST.get(name, _LONGEST_OF_DOCS if name.startswith("docs/") else None)


def _leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return False
    if not anchor:
        return True
    headings = _HEADING.findall(target.read_text(encoding="utf-8"))
    return anchor in {_anchor(heading) for heading in headings}


def _anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT))
    print("\n".join(found) or "pages: no problems found")
    sys.exit(bool(found))
