"""Derives the loop-nest statements of a sketch's programs from decisions, without lowering."""
