"""Compiles schedules to code, for a single task or a whole network."""
