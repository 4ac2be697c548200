"""The bytes that a tenant keeps in a home, and how many they may have."""

from __future__ import annotations

from pathlib import Path

from tunefleet.core.home import Home
from tunefleet.store import Store


def kept_bytes(store: Store, home: Path, tenant: str) -> int:
    """Bytes of a tenant's uploaded files, unpacked, and of the outputs of their `run` jobs."""
    outputs = Home(home).outputs_of(tenant).glob("*/*")
    return store.holdings.stored_bytes(tenant) + sum(map(_size, outputs))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # removed meanwhile
        return 0


def lack_of_quota(store: Store, home: Path, tenant: str, further: int) -> str:
    """Why a tenant may not keep so many bytes more; "" where they may."""
    user = store.accounts.user(tenant)
    most = None if user is None else user.quota.stored_bytes
    if most is None:
        return ""
    kept = kept_bytes(store, home, tenant)
    if kept + further <= most:
        return ""
    return f"your files have {kept} of {most} bytes, and {further} more would be too many"


#: What to do about it.
QUOTA_CURE = "delete networks or jobs with outputs, or ask the operator for a larger quota"
