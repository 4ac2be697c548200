"""What a user says of a network: where it is, and how it is to be imported."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunefleet.core.ids import digest
from tunefleet.core.precision import FLOAT32
from tunefleet.core.shapes import ShapeRequest


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`shapes` fixes what the network leaves free. `whole`: refuse a network of which a part would
    stay in its source framework. `trust`: run code that its file may hold, where reading it needs
    that. `precision`: of its products of floats, float32 or bf16."""

    shapes: ShapeRequest = field(default_factory=ShapeRequest)
    whole: bool = False
    trust: bool = False
    precision: str = FLOAT32


#: Nothing in particular is asked.
DEFAULT_IMPORT = ImportOptions()


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """A network before it is imported: its specification (a path, or a name of the zoo), its name,
    the digest of its files, and how it is to be imported."""

    spec: str
    name: str
    content: str
    options: ImportOptions = DEFAULT_IMPORT

    @property
    def identity(self) -> str:
        """Agrees where an import would make the same: wherever the files lie."""
        shapes = self.options.shapes
        asked = [shapes.shapes, shapes.dims, shapes.constants, self.options.whole]
        if self.options.precision != FLOAT32:
            asked.append(self.options.precision)
        return digest([self.content, asked])
