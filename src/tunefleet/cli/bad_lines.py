"""Lines of logs that are no records, told to the user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tunefleet.cli.outcome import one_line

if TYPE_CHECKING:
    from tunefleet.dataset.codecs import BadLine


class BadLines:
    """Shows the first bad lines as they come; `end` tells how many there were besides."""

    def __init__(self, shown: int = 1) -> None:
        self.shown = shown
        self.count = 0

    def __call__(self, bad: BadLine) -> None:
        self.count += 1
        if self.count <= self.shown:
            print(f"bad line: {one_line(str(bad))}", file=sys.stderr)

    def end(self) -> None:
        if self.count > self.shown:
            print(f"and {self.count - self.shown:,} more bad lines", file=sys.stderr)
