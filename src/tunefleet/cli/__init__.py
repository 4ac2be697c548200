"""The command line: thin commands over the functions of the package.

Importing this room loads no compiler and no framework; each command imports what it needs.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """The `tunefleet` command."""
    try:
        from tunefleet.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            "tunefleet: only the runtime is installed; "
            "the command line comes with pip install 'tunefleet[tune]'",
            file=sys.stderr,
        )
        sys.exit(3)
    except KeyboardInterrupt:  # before `run`, which explains what ends a command
        print("stopped", file=sys.stderr)
        sys.exit(130)

    sys.exit(run(sys.argv[1:]))
