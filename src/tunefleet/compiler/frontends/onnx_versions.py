"""Versions that files are stamped with, and those that the installed ONNX Runtime reads.

Exporters stamp the newest version that they know. ONNX Runtime refuses what is newer than itself,
whatever the operators; asked to go on, it takes them as of the newest version that it knows, and
refuses what it then does not understand. So do we.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import onnx
from onnx import helper

_STANDARD = ("", "ai.onnx")
#: Newer than anything that is read.
_FUTURE = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """The newest format of files and the newest opset of the standard; None where not known."""

    format: int | None
    opset: int | None


@lru_cache(maxsize=1)
def runtime_limits() -> Limits:
    """What the installed ONNX Runtime says when it is shown files of the future."""
    node = helper.make_node("Identity", ["x"], ["y"])
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([node], "probe", [value], [onnx.ValueInfoProto(name="y")])
    found = []
    for ir_version, opset, pattern in (
        (_FUTURE, 13, r"max supported IR version: (\d+)"),
        (8, _FUTURE, r"till opset (\d+)"),
    ):
        imports = [helper.make_opsetid("", opset)]
        probe = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
        match = re.search(pattern, _refusal(probe))
        found.append(int(match.group(1)) if match else None)
    return Limits(*found)


def _refusal(model: onnx.ModelProto) -> str:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as exc:  # its own kinds have no common base
        return str(exc)
    return ""


def restamp(model: onnx.ModelProto) -> str | None:
    """Stamps a model with versions that ONNX Runtime reads, where its own are newer. Returns what
    the user should know of it, "" for nothing, None where nothing is changed."""
    limits, note = runtime_limits(), None
    if limits.format is not None and model.ir_version > limits.format:
        model.ir_version = limits.format
        note = ""
    for opset in model.opset_import:
        if opset.domain in _STANDARD and limits.opset is not None and opset.version > limits.opset:
            note = (
                f"opset {opset.version} is newer than ONNX Runtime's here, so its operators are "
                f"read as those of opset {limits.opset}"
            )
            opset.version = limits.opset
    return note
