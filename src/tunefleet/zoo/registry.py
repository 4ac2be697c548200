"""Builds networks of the zoo; torch is imported here only when one is built."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from tunefleet.errors import SetupError
from tunefleet.system.packages import require
from tunefleet.zoo.catalogue import CATALOGUE, ZOO_VERSION
from tunefleet.zoo.spec import ZooSpec, parse

if TYPE_CHECKING:
    import torch

_INSTALL = "pip install tunefleet[zoo]"

__all__ = ["ZOO_VERSION", "ZooNetwork", "build", "content_key", "names"]


@dataclass(frozen=True)
class ZooNetwork:
    """A built network: `module` is in eval mode and returns one tensor."""

    spec: ZooSpec
    module: torch.nn.Module
    example_inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Every network of the zoo, sorted."""
    return tuple(sorted(CATALOGUE))


def build(spec: str | ZooSpec) -> ZooNetwork:
    """Builds a network; equal specifications give equal weights and inputs in every process.

    The caller's random state and gradient mode are left alone. Raises InputError for a bad
    specification and SetupError when a package that the network needs is not installed
    or does not load.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    require(f"zoo:{spec.name}", CATALOGUE[spec.name].packages, _INSTALL)
    import torch

    module_name, _, function = CATALOGUE[spec.name].factory.partition(":")
    factory = getattr(import_module(f"tunefleet.zoo.{module_name}"), function)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(spec["seed"])
        module, inputs = factory(spec)
    module.eval().requires_grad_(False)
    return ZooNetwork(spec, module, tuple(inputs.values()), tuple(inputs))


def content_key(spec: ZooSpec) -> str:
    """All that decides the content of a network, without building it or importing torch."""
    return " ".join([spec.complete, f"zoo={ZOO_VERSION}", *_package_versions(spec)])


@functools.cache
def _version(package: str) -> str:
    """Read once: it is what this process imports."""
    return metadata.version(package)


def _package_versions(spec: ZooSpec) -> list[str]:
    versions = []
    for package in CATALOGUE[spec.name].packages:
        try:
            versions.append(f"{package}={_version(package)}")
        except metadata.PackageNotFoundError as exc:
            raise SetupError(
                f"zoo:{spec.name} needs {package}, which is not installed",
                cure=_INSTALL,
            ) from exc
    return versions
