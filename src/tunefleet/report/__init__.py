"""A result or a schedule as text or picture: pure functions of values, without files, clock or
compiler."""

from tunefleet.report.gantt import gantt_png, gantt_svg
from tunefleet.report.gantt_page import gantt_page
from tunefleet.report.html import render_html
from tunefleet.report.timeline import Bar, Gap, Timeline

__all__ = ["Bar", "Gap", "Timeline", "gantt_page", "gantt_png", "gantt_svg", "render_html"]
