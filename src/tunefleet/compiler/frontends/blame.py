"""Whose fault an exception is: a network that a library does not take, or our own bug."""

from __future__ import annotations

import re
from pathlib import Path


def gist(exc: BaseException, most: int = 120) -> str:
    """The kind of an exception and the first line that says something."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    line = next((line for line in lines if not line.startswith(("Traceback", "File "))), "")
    line = line if len(line) <= most else line[: most - 3] + "..."
    return f"{type(exc).__name__}: {line}" if line else type(exc).__name__


def said_by_runtime(exc: Exception, path: Path) -> str:
    """What ONNX Runtime says of a file, without what it puts before each of its messages."""
    text = " ".join(str(exc).split())
    text = text.removeprefix("[ONNXRuntimeError] : ")
    text = re.sub(r"^\d+ : [A-Z_]+ : ", "", text)
    text = text.removeprefix(f"Load model from {path} failed:").strip()
    text = text.removeprefix("Non-zero status code returned while running ")
    # The place in its own source, with the signature of a function.
    text = re.sub(r"(Status Message: )?/\S+:\d+ .*\) (?=\S)", "", text)
    return text if len(text) <= 120 else text[:117] + "..."


def cure_of_run(exc: Exception) -> str:
    """What to do about a file that ONNX Runtime opens and does not run."""
    # It makes negative padding of a rule where a pool steps over what it does not read.
    if "AutoPadType" in str(exc) or "padding values must be non-negative" in str(exc):
        return "write the padding of this node in numbers: pads instead of auto_pad"
    return (
        "give shapes that it was exported for: --shape, --dim, and values that it knows to inputs "
        "that choose: --constant"
    )


def cure_of_runtime(exc: Exception) -> str:
    """What to do about a file that ONNX Runtime makes no session of."""
    foreign = re.search(r"(\S+):(\w+)\(-?\d+\) is not a registered function/op", str(exc))
    if foreign is None:
        return "correct the file, or export it again with a lower opset"
    domain, operator = foreign.groups()
    return (
        f"write what {operator} of {domain} computes in operators of ONNX: "
        "the code of other domains is not in the file"
    )
