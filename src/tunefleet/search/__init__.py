"""Search over a task's decisions as arrays: sketches, populations, evolution, cost-model guide.

This package does not load the compiler.
"""
