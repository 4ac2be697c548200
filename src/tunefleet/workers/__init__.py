"""The processes that do the work: pools with limits, and the workers of this machine."""
