"""Pure: events in, instructions out."""
