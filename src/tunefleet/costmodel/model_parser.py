"""Loads the members of a cost model in a process of its own, to see whether they can be.

python -m tunefleet.costmodel.model_parser SIZE ENTRY
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tunefleet.costmodel.registry import open_entry
from tunefleet.system.parsing import parse

#: What torch maps, the largest library of a kind of model.
_LIBRARY_BYTES = 4 << 30


def _load(arguments: Sequence[str], stream: IO[bytes]) -> None:
    open_entry(Path(arguments[0])).load_here()


if __name__ == "__main__":
    parse(_load, _LIBRARY_BYTES)
