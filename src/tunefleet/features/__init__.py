"""Features of programs. Each kind of feature is a documented schema with a version."""

from tunefleet.features.packing import is_of_schema, pack, schema_of, unpack

__all__ = ["is_of_schema", "pack", "schema_of", "unpack"]
