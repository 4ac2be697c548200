"""A result as text: pure functions from a JSON value, without files, clock or compiler."""

from tunefleet.report.html import render_html

__all__ = ["render_html"]
