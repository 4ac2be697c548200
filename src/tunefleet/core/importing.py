"""What a user says of how a network is to be imported."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunefleet.core.shapes import ShapeRequest


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`shapes` fixes what the network leaves free. `whole`: refuse a network of which a part would
    stay in its source framework. `trust`: run code that its file may hold, where reading it needs
    that."""

    shapes: ShapeRequest = field(default_factory=ShapeRequest)
    whole: bool = False
    trust: bool = False


#: Nothing in particular is asked.
DEFAULT_IMPORT = ImportOptions()
