"""What our pages share: the frame with its style sheet, sections, and small pieces in them.

No network, and no script but the one that sorts tables; everything given as text is escaped here,
`content` is markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tunefleet.core.printing import printable
from tunefleet.report.sorting import SCRIPT, script_digest
from tunefleet.report.style import CSS
from tunefleet.report.units import UNKNOWN, format_share

#: Nothing may be loaded, whatever a name in a result contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(
    heading: str,
    kicker: str,
    about: str,
    sections: Iterable[str],
    footer: str = "",
    *,
    sortable: bool = False,
) -> str:
    """The whole document; empty sections are left out. `sortable`: it has a table to be sorted."""
    policy = f"{_POLICY}; script-src {script_digest()}" if sortable else _POLICY
    return printable(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(heading)} {UNKNOWN} tunefleet</title><style>{CSS}</style></head>\n"
        f'<body><main><header><p class="kicker">{escape(kicker)}</p>'
        f"<h1>{escape(heading)}</h1><p>{escape(about)}</p></header>\n"
        + "\n".join(filter(None, sections))
        + f"\n<footer>{escape(footer)}</footer></main>"
        + (f"<script>{SCRIPT}</script>" if sortable else "")
        + "</body></html>\n"
    )


def section(title: str, content: str, note: str = "", kind: str = "") -> str:
    """A card with a heading; `kind` is its class in the style sheet."""
    small = f" <small>{escape(note)}</small>" if note else ""
    name = f' class="{kind}"' if kind else ""
    return f"<section{name}><h2>{escape(title)}{small}</h2>{content}</section>"


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values below each other."""
    items = "".join(f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in rows)
    return f"<dl>{items}</dl>"


def meter_cell(share: float | None, length: float, kind: str = "") -> str:
    """A table cell with a share in per cent and a bar of `length` (0 to 1) below it."""
    width = max(0.0, min(1.0, length)) * 100
    drawn = (
        f'<span class="meter {kind}"><span style="width:{width:.1f}%"></span></span>'
        if share is not None
        else ""
    )
    value = "" if share is None else f' data-value="{share:.6g}"'
    return f'<td class="bar"{value}>{escape(format_share(share))}{drawn}</td>'
