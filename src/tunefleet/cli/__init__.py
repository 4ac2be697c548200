"""The command line: thin commands over the functions of the package.

Importing this room loads no compiler and no framework; each command imports what it needs.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """The `tunefleet` command."""
    from tunefleet.cli.app import run

    sys.exit(run(sys.argv[1:]))
