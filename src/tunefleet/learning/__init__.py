"""Training of cost models from files of records: inputs, splits, training, evaluation, versions.

It combines `dataset`, `features` and `costmodel`, which do not import each other.
"""
