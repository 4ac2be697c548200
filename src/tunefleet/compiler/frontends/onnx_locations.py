"""Tells, in a process of its own, in which files an ONNX file keeps its weights.

python -m tunefleet.compiler.frontends.onnx_locations SIZE FILE
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tunefleet.errors import InputError
from tunefleet.system.parsing import parse


def locations(path: Path) -> list[str]:
    """The names of the files that hold weights of an ONNX file. Raises InputError."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
        from onnx.external_data_helper import uses_external_data
    except ImportError as error:
        raise InputError(f"the package onnx is missing: {error}") from error
    try:
        model = onnx.load(path, load_external_data=False)
        names = {
            entry.value
            for tensor in model.graph.initializer
            if uses_external_data(tensor)
            for entry in tensor.external_data
            if entry.key == "location"
        }
    except (DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a readable ONNX file") from error
    return sorted(names)


def _tell(arguments: Sequence[str], stream: IO[bytes]) -> None:
    stream.write(json.dumps(locations(Path(arguments[0]))).encode())


if __name__ == "__main__":
    parse(_tell)
