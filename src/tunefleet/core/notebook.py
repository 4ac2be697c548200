"""Values as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def html_table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values below each other; everything is escaped."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{lines}</table>"
