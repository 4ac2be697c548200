"""Devices: what may be measured on, and how soon."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tunefleet.service.caller import ByUser
from tunefleet.service.values import DeviceList, QueueView

router = APIRouter(prefix="/v1", tags=["devices"])


@router.get("/devices")
def list_devices(request: Request, caller: ByUser) -> DeviceList:
    """All devices, what they do, and for which of one's jobs; their addresses for an admin. Those
    that nobody uses were asked within the last half minute."""
    return DeviceList(devices=request.app.state.devices.views(caller))


@router.get("/queue")
def get_queue(request: Request, caller: ByUser) -> QueueView:
    """How many jobs are under way, when one that is entered now would begin, by the scheduler's
    estimates, and when the last of them ends."""
    view: QueueView = request.app.state.jobs.queue()
    return view
