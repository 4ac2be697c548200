"""What the loop nests of a sketch's programs do, from their decisions alone."""
