"""Cost models learned from files of records: inputs, splits, training, evaluation, versions.

The room above `dataset`, `features` and `costmodel`, which do not know each other.
"""
