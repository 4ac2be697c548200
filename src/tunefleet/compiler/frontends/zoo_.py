"""The zoo: networks built here, with seeded random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest
from tunefleet.compiler.frontends.onnx_ import OnnxFrontend
from tunefleet.compiler.frontends.spec import is_zoo, network_digest
from tunefleet.compiler.frontends.torch_ import TorchReference, TorchSource, import_program
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.precision import INT8
from tunefleet.errors import InputError
from tunefleet.zoo import ZooNetwork, ZooSpec, build, parse

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class ZooFrontend:
    """Builds ``zoo:...`` networks and imports them by way of `torch.export`."""

    name = "zoo"

    def accepts(self, spec: str) -> bool:
        return is_zoo(spec)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        zoo_spec = parse(spec)
        if request.shapes:
            raise InputError(
                f"{spec}: the shapes of a zoo network are parameters of its name",
                cure=f"such as zoo:{zoo_spec.name}?batch=2; see `tunefleet networks`",
            )
        if zoo_spec.precision == INT8:
            return _quantized(spec, request)
        with quiet():
            network, program = _exported(zoo_spec)
            return import_program(
                program,
                TorchReference(TorchSource("zoo_", spec)),
                request,
                what=str(zoo_spec),
                name=zoo_spec.label,
                source=self.name,
                digest=network_digest(spec),
                input_names=network.input_names,
            )


def _quantized(spec: str, request: ImportRequest) -> ImportedNetwork:
    """In a file that lives as long as this process: who keeps a network gives the file itself."""
    from tunefleet.compiler.quantize import quantized_file
    from tunefleet.compiler.quantize.files import quantized_folder

    file = quantized_file(spec, None, quantized_folder())
    return OnnxFrontend().load(str(file), request)


def _exported(spec: ZooSpec) -> tuple[ZooNetwork, ExportedProgram]:
    network = build(spec)
    import torch

    with torch.no_grad():
        return network, torch.export.export(network.module, network.example_inputs)


def program_of(source: TorchSource) -> ExportedProgram:
    return _exported(parse(source.spec))[1]
