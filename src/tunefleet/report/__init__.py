"""A result as text: pure functions from a JSON value, without files, clock or compiler."""

from __future__ import annotations

from typing import Any

__all__ = ["render_html"]


def render_html(result: dict[str, Any]) -> str:
    """One self-contained HTML page about a result (see `tunefleet.report.html`)."""
    from tunefleet.report.html import render_html as render

    return render(result)
