"""A program as numbers. Each kind of feature is a documented schema with a version."""

from tunefleet.features.packing import pack, unpack

__all__ = ["pack", "unpack"]
