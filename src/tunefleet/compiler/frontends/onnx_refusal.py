"""Why a node is not converted."""

from __future__ import annotations


class Refusal(NotImplementedError):
    """A node cannot be converted; the text says why. `follows`: because of one before it."""

    def __init__(self, reason: str, *, follows: bool = False) -> None:
        super().__init__(reason)
        self.follows = follows

    def told(self) -> Refusal:
        """The same without what was on the stack, to be kept."""
        return Refusal(str(self), follows=self.follows)
