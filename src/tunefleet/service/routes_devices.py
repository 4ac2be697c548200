"""Devices and the queue."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tunefleet.service.caller import ByUser
from tunefleet.service.values import DeviceList, QueueView

router = APIRouter(prefix="/v1", tags=["devices"])


@router.get("/devices")
def list_devices(request: Request, caller: ByUser) -> DeviceList:
    """All devices, their state, and which of one's jobs uses them; addresses for admins only.
    Idle ones were contacted within the last half minute."""
    return DeviceList(devices=request.app.state.devices.views(caller))


@router.get("/queue")
def get_queue(request: Request, caller: ByUser) -> QueueView:
    """The number of jobs under way, and by the scheduler's estimates when a new one would start
    and when the last one ends."""
    view: QueueView = request.app.state.jobs.queue()
    return view
