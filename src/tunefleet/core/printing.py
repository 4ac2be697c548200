"""Text that is shown or pasted: names in it may come from anybody's file, server or option."""

from __future__ import annotations

import shlex
import unicodedata

#: What stands for a character that cannot be shown.
_INSTEAD = "?"
_KEPT = "\n\t"


def printable(text: str) -> str:
    """`text` without what steers a terminal or changes the order in which text is read (control
    characters, marks of direction, halves of surrogate pairs): lines stay lines."""
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else _INSTEAD for c in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs"


def quoted(word: str) -> str:
    """A word of a command that is shown to be copied: it stays one word, and can be seen whole."""
    if word.isprintable():
        return shlex.quote(word)
    escapes = {"\\": "\\\\", "'": "\\'"}
    return (
        "$'"
        + "".join(escapes.get(c) or (c if c.isprintable() else _escaped(c)) for c in word)
        + "'"
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return (
        f"\\x{code:02x}"
        if code < 0x80
        else f"\\u{code:04x}"
        if code <= 0xFFFF
        else f"\\U{code:08x}"
    )
