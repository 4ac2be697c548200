"""Asking before something is removed that cannot be had back."""

from __future__ import annotations

import sys

import typer

from tunefleet.errors import InputError


def confirmed(question: str, *, yes: bool) -> None:
    """Return when the user agrees, by `--yes` or at a terminal. Raises typer.Abort where they do
    not, and InputError where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("nobody can be asked: the input is no terminal", cure="add --yes")
    if not typer.confirm(question, err=True):
        raise typer.Abort
