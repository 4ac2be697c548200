"""The user's specification of a network: its location and its import options."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunefleet.core.ids import digest
from tunefleet.core.precision import FLOAT32
from tunefleet.core.shapes import ShapeRequest


@dataclass(frozen=True, slots=True)
class InputFile:
    """Inputs to check and measure with: a path, and the digest of its content."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`shapes` fixes free dimensions. `whole`: refuse a network if a part of it would stay in its
    source framework. `trust`: run code from the file where reading the file requires that.
    `precision` of float products: float32 or one of `FLOATS`. `inputs` to check and measure with, a
    file for each of the shapes; where there is none they are drawn."""

    shapes: ShapeRequest = field(default_factory=ShapeRequest)
    whole: bool = False
    trust: bool = False
    precision: str = FLOAT32
    inputs: tuple[InputFile, ...] = ()


#: The defaults.
DEFAULT_IMPORT = ImportOptions()


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """A network before its import: its specification (a path, or a name of the zoo), its name, the
    digest of its files, and the import options. `tenant` is who gave it: what is made of it serves
    nobody else, so nobody can time whether another has it."""

    spec: str
    name: str
    content: str
    options: ImportOptions = DEFAULT_IMPORT
    tenant: str = ""

    @property
    def identity(self) -> str:
        """Equal for networks whose imports have equal results, independent of the path."""
        shapes = self.options.shapes
        asked = [shapes.shapes, shapes.dims, shapes.constants, self.options.whole]
        if self.options.precision != FLOAT32:
            asked.append(self.options.precision)
        if self.options.inputs:
            asked.append([file.content for file in self.options.inputs])
        if self.tenant:
            asked.append({"tenant": self.tenant})
        return digest([self.content, asked])
