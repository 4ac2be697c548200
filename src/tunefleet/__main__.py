"""`python -m tunefleet`: the command, where its script is not on the PATH."""

from __future__ import annotations

from tunefleet.cli import main

if __name__ == "__main__":
    main()
