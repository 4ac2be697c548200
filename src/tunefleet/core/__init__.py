"""Pure values and rules. No I/O, no clock, nothing outside the standard library."""
