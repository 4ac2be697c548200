"""The zoo: networks built here, with seeded random weights."""

from __future__ import annotations

from tunefleet.compiler.frontends.imported import ImportedNetwork
from tunefleet.compiler.frontends.spec import is_zoo, network_digest
from tunefleet.compiler.frontends.torch_ import import_program
from tunefleet.compiler.quiet import quiet
from tunefleet.zoo import build, parse


class ZooFrontend:
    """Builds ``zoo:...`` networks and imports them by way of `torch.export`."""

    name = "zoo"

    def accepts(self, spec: str) -> bool:
        return is_zoo(spec)

    def load(self, spec: str) -> ImportedNetwork:
        zoo_spec = parse(spec)
        with quiet():
            network = build(zoo_spec)
            import torch

            with torch.no_grad():
                program = torch.export.export(network.module, network.example_inputs)
            return import_program(
                program,
                what=str(zoo_spec),
                name=zoo_spec.label,
                source=self.name,
                digest=network_digest(spec),
                input_names=network.input_names,
            )
