"""Networks that can be built without a download: seeded random weights, realistic activations."""

from tunefleet.zoo.collection import CONFIGURATIONS, HELD_OUT
from tunefleet.zoo.registry import ZOO_VERSION, ZooNetwork, build, names
from tunefleet.zoo.spec import ZooSpec, parse

__all__ = [
    "CONFIGURATIONS",
    "HELD_OUT",
    "ZOO_VERSION",
    "ZooNetwork",
    "ZooSpec",
    "build",
    "names",
    "parse",
]
