"""A client of a service elsewhere, with the names of the local API."""

from __future__ import annotations

from tunefleet.client.awaiting import AsyncClient
from tunefleet.client.clients import Client, connect

__all__ = ["AsyncClient", "Client", "connect"]
