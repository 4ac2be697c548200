"""What may happen to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

#: Changes a file or a folder.
Damage = Callable[[Path], object]


def cut(share: float) -> Damage:
    def damage(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * share))

    return damage


def spoilt(path: Path) -> None:
    """Zeros over the middle third."""
    content = bytearray(path.read_bytes())
    third = len(content) // 3
    content[third : 2 * third] = bytes(third)
    path.write_bytes(content)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def instead(make: Damage) -> Damage:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def linked(path: Path) -> None:
    os.symlink(path, path)
