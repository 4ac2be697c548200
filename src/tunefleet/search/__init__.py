"""The decisions of a task as arrays: sketches, populations, evolution, and the model that steers.

No compiler is loaded here.
"""
