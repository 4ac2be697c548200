"""Identifiers: content digests and the canonical form that they are computed from."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any, length: int = 32) -> str:
    """The first `length` hex digits of the SHA-256 of bytes, text or a JSON value."""
    if isinstance(value, bytes):
        data = value
    else:
        text = value if isinstance(value, str) else canonical_json(value)
        data = text.encode()
    return hashlib.sha256(data).hexdigest()[:length]


def is_digest(name: str) -> bool:
    """Whether a name is 128 bits in hexadecimal, like ids and the names by auto_scheduler."""
    return re.fullmatch("[0-9a-f]{32}", name) is not None


def seed_of(*parts: object) -> int:
    """A positive 31-bit seed derived from the parts only."""
    return int(digest([str(p) for p in parts], 8), 16) % (2**31 - 2) + 1
