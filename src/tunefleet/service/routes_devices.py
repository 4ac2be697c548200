"""Devices: what may be measured on."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tunefleet.service.caller import ByUser
from tunefleet.service.values import DeviceList

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.get("")
def list_devices(request: Request, caller: ByUser) -> DeviceList:
    """All devices, what they do, and for which of one's jobs; their addresses for an admin. Those
    that nobody uses were asked within the last half minute."""
    return DeviceList(devices=request.app.state.devices.views(caller))
