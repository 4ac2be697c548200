"""Versions that files are stamped with, and those that the installed ONNX Runtime reads.

Exporters stamp the newest version that they know. ONNX Runtime refuses what is newer than itself,
whatever the operators. Operators that the standard defined or changed since, as functions of
others, are written out; those that are left are taken as of the newest version that it knows, as
ONNX Runtime does where it is asked to go on. It refuses what it then does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import onnx
from onnx import helper, inliner

from tunefleet.artifacts.onnx_session import open_session, session_options
from tunefleet.compiler.frontends.onnx_infer import attempt
from tunefleet.errors import raise_mistake

#: Both names of the standard domain.
STANDARD_NAMES = ("", "ai.onnx")
#: Operators that ONNX tries out.
_PREVIEW = "ai.onnx.preview"
#: Newer than anything that is read.
MOST_VERSION = 1000


@dataclass(frozen=True, slots=True)
class VersionLimits:
    """The newest format of files and the newest opset of the standard; None where not known."""

    format: int | None
    opset: int | None


@lru_cache(maxsize=1)
def runtime_limits() -> VersionLimits:
    """What the installed ONNX Runtime says when it is shown files of the future."""
    node = helper.make_node("Identity", ["x"], ["y"])
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([node], "probe", [value], [onnx.ValueInfoProto(name="y")])
    limits = []
    for ir_version, opset, pattern in (
        (MOST_VERSION, 13, r"max supported IR version: (\d+)"),
        (8, MOST_VERSION, r"till opset (\d+)"),
    ):
        imports = [helper.make_opsetid("", opset)]
        probe = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
        match = re.search(pattern, _refusal(probe))
        limits.append(int(match.group(1)) if match else None)
    return VersionLimits(*limits)


def _refusal(model: onnx.ModelProto) -> str:
    try:
        open_session(model.SerializeToString(), session_options(1), exact=False)
    except Exception as exc:  # its own kinds have no common base
        raise_mistake(exc)
        return str(exc)
    return ""


def restamp(model: onnx.ModelProto) -> str | None:
    """Brings a model to versions that ONNX Runtime reads, where its own are newer. Returns what the
    user should know of it, "" for nothing, None where nothing is changed."""
    limits, note = runtime_limits(), None
    if limits.format is not None and model.ir_version > limits.format:
        model.ir_version = limits.format
        note = ""
    if limits.opset is None:
        return note
    if _write_out(model, limits.opset):
        note = ""
    for opset in model.opset_import:
        if opset.domain in STANDARD_NAMES and opset.version > limits.opset:
            note = (
                f"opset {opset.version} is newer than ONNX Runtime's here, so its operators are "
                f"read as those of opset {limits.opset}"
            )
            opset.version = limits.opset
    return note


def _write_out(model: onnx.ModelProto, most: int) -> bool:
    """Replaces operators that are newer than `most` by the functions that define them; whether
    there are any."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    versions |= {"": max(versions.get(domain, 1) for domain in STANDARD_NAMES)}
    newer = {
        (node.domain, node.op_type)
        for node in _nodes(model.graph)
        if _is_newer(node, versions, most)
    }
    if not newer:
        return False
    written = attempt(
        # It does not take every form of a node, such as inputs that are left out.
        lambda: inliner.inline_selected_functions(
            model, sorted(newer), inline_schema_functions=True
        )
    )
    if written is None:
        return False
    model.CopyFrom(written)
    return True


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _is_newer(node: onnx.NodeProto, versions: Mapping[str, int], most: int) -> bool:
    domain = "" if node.domain in STANDARD_NAMES else node.domain
    version = versions.get(domain, 1)
    # An operator that its version does not have yet is no newer form of one: ONNX Runtime says so.
    if domain not in ("", _PREVIEW) or not onnx.defs.has(node.op_type, version, domain):
        return False
    schema = onnx.defs.get_schema(node.op_type, version, domain)
    is_function = schema.has_function or schema.has_context_dependent_function
    return is_function and (domain == _PREVIEW or schema.since_version > most)
