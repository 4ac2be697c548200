"""Seeded changes of valid content: of bytes, JSON, archives, headers and logs."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from typing import Any

from hostile_networks import rezipped


def any_bytes(content: bytes, chance: random.Random) -> bytes:
    """Some bytes are changed, lost, repeated, new or elsewhere."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        start = chance.randrange(len(found) + 1)
        end = min(len(found), start + chance.choice((1, 2, 4, 8, 64, 512)))
        other = chance.randrange(len(found) + 1)
        kind = chance.choice(("flip", "cut", "repeat", "insert", "zero", "swap", "lose", "ones"))
        if kind == "flip":
            for _ in range(chance.choice((1, 1, 2, 8))):
                if found:
                    found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del found[start:]
        elif kind == "lose":
            del found[start:end]
        elif kind == "repeat":
            found[start:start] = found[start:end] * chance.choice((1, 2, 100))
        elif kind == "insert":
            found[start:start] = chance.randbytes(chance.choice((1, 4, 64)))
        elif kind == "swap":
            block = found[start:end]
            found[start:end] = found[other : other + len(block)]
            found[other : other + len(block)] = block
        else:
            found[start:end] = (b"\0" if kind == "zero" else b"\xff") * (end - start)
    return bytes(found)


_STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, -(2**63), 10**400, 1e308, 0.5, "", "x", "\x1b[2J\n",
    "x" * 10_000, "../../../etc/passwd", "\ud800", [], {}, [[]], {"x": {}}, [1, "a", None],
)  # fmt: skip


def any_json(content: bytes, chance: random.Random) -> bytes:
    """Values of another type or size, keys that are gone or new; now and then broken bytes."""
    if chance.random() < 0.3:
        return any_bytes(content, chance)
    value = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        places = list(_places(value))
        if not places:
            break
        holder, key = chance.choice(places)
        kind = chance.choice(("strange", "strange", "number", "delete", "swap", "nest"))
        if kind == "delete":
            del holder[key]
        elif kind == "number" and isinstance(holder[key], (int, float)):
            holder[key] = holder[key] * chance.choice((-1, 2, 1000, 10**9)) + chance.choice((0, 1))
        elif kind == "swap":
            other, place = chance.choice(places)
            # A copy: in what holds itself there are no end of places.
            holder[key] = copy.deepcopy(other[place])
        elif kind == "nest":
            holder[key] = [holder[key]]
        else:
            # A copy again: the next change may be one within it, and the value is there for all.
            holder[key] = copy.deepcopy(chance.choice(_STRANGE))
    try:
        return json.dumps(value).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return any_bytes(content, chance)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a value with each of its keys."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each))
        found += [(each, key) for key in keys]
        waiting += [each[key] for key in keys if isinstance(each[key], (dict, list))]
    return found


def any_archive(content: bytes, chance: random.Random) -> bytes:
    """The bytes of an archive, or those of a member of it with its right sum."""
    if chance.random() < 0.3:
        return any_bytes(content, chance)
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    name = chance.choice([n for n in names if n.endswith(".json")] if chance.random() < 0.6
                         else names)  # fmt: skip
    if chance.random() < 0.1:
        return rezipped(content, {}, left_out=[name])
    change = any_json if name.endswith(".json") else any_bytes
    return rezipped(content, {name: lambda old: change(old, chance)})


def any_header(content: bytes, chance: random.Random) -> bytes:
    """safetensors: the bytes, or the header with its right length."""
    if chance.random() < 0.4:
        return any_bytes(content, chance)
    length = int.from_bytes(content[:8], "little")
    header = any_json(content[8 : 8 + length], chance)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def any_lines(content: bytes, chance: random.Random) -> bytes:
    """A log: one of its lines."""
    lines = content.splitlines(keepends=True)
    index = chance.randrange(len(lines))
    lines[index] = any_json(lines[index], chance) + b"\n"
    return b"".join(lines)
