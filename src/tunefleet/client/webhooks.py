"""Webhooks of a service: generators of calls. Values are those of the API (`WebhookView`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunefleet.client.calls import Call, Calls, value_of

_PATH = "/v1/webhooks"


def listed() -> Calls[list[dict[str, Any]]]:
    """One's webhooks."""
    found: list[dict[str, Any]] = (yield from value_of(Call("GET", _PATH)))["webhooks"]
    return found


def added(url: str, events: Sequence[str]) -> Calls[dict[str, Any]]:
    """A new webhook, with its secret."""
    return (yield from value_of(Call("POST", _PATH, {"url": url, "events": list(events)})))


def pinged(webhook: str) -> Calls[dict[str, Any]]:
    """The result of a `ping`."""
    return (yield from value_of(Call("POST", f"{_PATH}/{webhook}/test")))


def enabled(webhook: str) -> Calls[dict[str, Any]]:
    """A webhook that sends the events from now on."""
    return (yield from value_of(Call("PATCH", f"{_PATH}/{webhook}", {"disabled": False})))


def rotated(webhook: str, overlap_hours: float) -> Calls[dict[str, Any]]:
    """A webhook with its new secret."""
    asked = {"overlap_hours": overlap_hours}
    return (yield from value_of(Call("POST", f"{_PATH}/{webhook}/rotate", asked)))


def removed(webhook: str) -> Calls[None]:
    """A webhook is removed."""
    yield Call("DELETE", f"{_PATH}/{webhook}")


def deliveries(webhook: str, limit: int) -> Calls[list[dict[str, Any]]]:
    """Past deliveries, the newest event first."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None and len(found) < limit:
        params: dict[str, str | int] = {"limit": min(100, limit - len(found)), "cursor": cursor}
        page = (yield Call("GET", f"{_PATH}/{webhook}/deliveries", params=params)).value
        found += page["deliveries"]
        cursor = page["next"]
    return found
