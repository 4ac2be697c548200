"""The search spaces of tasks by target."""
