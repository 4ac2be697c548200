"""Hosts that run stages for others, and what they are given, as a store knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """A host for ever: one that joins again under its `name` has another `incarnation`."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class JoinedHost:
    """`resources` is what it offers, as JSON; `silent_s` are the seconds since its last
    heartbeat."""

    identity: HostIdentity
    resources: Any
    silent_s: float


@dataclass(frozen=True, slots=True)
class GivenWork:
    """Work that a host was given, as JSON, and has not reported. `abandoned`: it is not wanted any
    more."""

    number: int
    value: Any
    abandoned: bool = False
