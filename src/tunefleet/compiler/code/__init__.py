"""Schedules become compiled code: of one task, or of a whole network."""
