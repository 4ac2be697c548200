"""Tells, in a process of its own, in which files an ONNX file keeps its weights.

python -m tunefleet.compiler.frontends.onnx_locations SIZE FILE
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO

from tunefleet.errors import InputError
from tunefleet.system.parsing import parse


def _locations(arguments: Sequence[str], stream: IO[bytes]) -> None:
    try:
        import onnx
        from google.protobuf.message import DecodeError
        from onnx.external_data_helper import uses_external_data
    except ImportError as error:
        raise InputError(f"the package onnx is missing: {error}") from error
    try:
        model = onnx.load(arguments[0], load_external_data=False)
        names = {
            entry.value
            for tensor in model.graph.initializer
            if uses_external_data(tensor)
            for entry in tensor.external_data
            if entry.key == "location"
        }
    except (DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{arguments[0]} is not a readable ONNX file") from error
    stream.write(json.dumps(sorted(names)).encode())


if __name__ == "__main__":
    parse(_locations)
