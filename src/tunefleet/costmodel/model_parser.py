"""Loads the members of a cost model in a separate process, to check that this does not crash.

python -m tunefleet.costmodel.model_parser SIZE ENTRY
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tunefleet.costmodel.registry import open_entry
from tunefleet.system.parsing import parse

#: The address space of torch, the largest library of a kind of model.
_LIBRARY_BYTES = 4 << 30


def _load(arguments: Sequence[str], stream: IO[bytes]) -> None:
    open_entry(Path(arguments[0])).load_here()


if __name__ == "__main__":
    parse(_load, _LIBRARY_BYTES)
