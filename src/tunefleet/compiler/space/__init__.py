"""Which programs of a task exist on a target."""
