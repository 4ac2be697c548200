"""How what was delivered is used: commands and Python to copy, with the artifact's own path."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from html import escape

from tunefleet.core.result import RunResult
from tunefleet.report.page import section

#: `name: dtype[1, 3, 16, 16]`, as results name inputs.
_INPUT = re.compile(r"(?P<name>.*): (?P<dtype>\w+)\[(?P<shape>[\d, ]*)\]", re.S)


def usage(result: RunResult) -> str:
    """A section with both, "" where nothing was delivered."""
    if not result.artifact:
        return ""
    blocks = [
        ("From Python", python_text(result.artifact, result.network.inputs)),
        ("From a shell", shell_text(result.artifact, result.network.inputs)),
    ]
    content = "".join(
        f"<h3>{escape(title)}</h3><pre><code>{escape(text)}</code></pre>" for title, text in blocks
    )
    return section("How to use it", content, "the path is where the artifact was written")


def python_text(artifact: str, inputs: Sequence[str]) -> str:
    """Loads the artifact and calls it once, with zeros of the right shapes."""
    zeros = ",\n        ".join(_zeros(each) for each in inputs)
    return (
        "import numpy as np\n"
        "import tunefleet\n\n"
        f"with tunefleet.load({artifact!r}) as module:\n"
        f"    outputs = module(\n        {zeros},\n    )\n"
    )


def shell_text(artifact: str, inputs: Sequence[str]) -> str:
    """Runs it on arrays in files, and measures it again."""
    files = " ".join(f"--input {shlex.quote(_file(each))}" for each in inputs)
    path = shlex.quote(artifact)
    return f"tunefleet run {path} {files}\ntunefleet evaluate {path}\n"


def _zeros(text: str) -> str:
    found = _INPUT.fullmatch(text)
    if found is None:
        return "..."
    shape = tuple(int(extent) for extent in found["shape"].split(",") if extent.strip())
    return f"np.zeros({shape}, {found['dtype']!r})"


def _file(text: str) -> str:
    found = _INPUT.fullmatch(text)
    name = re.sub(r"\W+", "-", found["name"]).strip("-") if found else ""
    return f"{name or 'input'}.npy"
