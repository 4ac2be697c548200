"""The devices of a service: their properties, whether they respond, and the jobs that use them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from tunefleet.core.coordination import ClaimStatus
from tunefleet.core.home import Home
from tunefleet.devices.health import Health, healths_of
from tunefleet.devices.listing import ListedDevice, listed_devices
from tunefleet.devices.registry import DeviceRegistry
from tunefleet.errors import InputError
from tunefleet.fleet.leases import is_over
from tunefleet.service.caller import Caller
from tunefleet.service.conditions import DeviceCondition, DeviceConditions
from tunefleet.service.values import DeviceView
from tunefleet.store import Store, User

#: Seconds for which the response of a device is cached: each request disturbs it.
_ASKED_AGAIN_S = 30.0


class ServiceDevices:
    """Lists devices. Does not contact one that is measuring. Thread-safe."""

    def __init__(self, home: Home, store: Store) -> None:
        self._home = home
        self._store = store
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, Health]] = {}
        self._conditions = DeviceConditions(store)

    def views(self, caller: Caller) -> list[DeviceView]:
        """All devices as a caller may see them: addresses for admins only, and no names of
        others' jobs."""
        devices = listed_devices(DeviceRegistry(self._home.devices))
        claims = [
            status
            for status in self._store.coordination.claims()
            if status.granted and not status.claim.shared and not is_over(status)
        ]
        used = {device.name: _claim_of(device, claims) for device in devices}
        healths = self._healths([device for device in devices if used[device.name] is None])
        return [
            _in_condition(
                self._view(device, used[device.name], healths.get(device.name), caller),
                self._conditions.of(device.name),
            )
            for device in devices
        ]

    def _healths(self, devices: Sequence[ListedDevice]) -> dict[str, Health]:
        with self._lock:
            now = time.monotonic()
            old = [
                device
                for device in devices
                if now - self._answers.get(device.name, (-_ASKED_AGAIN_S, None))[0]
                >= _ASKED_AGAIN_S
            ]
            for device, health in zip(
                old, healths_of([device.spec for device in old]), strict=True
            ):
                self._answers[device.name] = (now, health)
            return {device.name: self._answers[device.name][1] for device in devices}

    def _view(
        self,
        device: ListedDevice,
        claim: ClaimStatus | None,
        health: Health | None,
        caller: Caller,
    ) -> DeviceView:
        identity = device.description.identity
        view = DeviceView(
            name=device.name,
            # TVM's servers have no authentication.
            address=device.spec.url if caller.is_admin else "",
            what=identity.name,
            cores=identity.cores,
            memory_gib=identity.memory_gib,
            machine=device.description.machine,
            state="measuring",
        )
        if claim is None:
            assert health is not None
            answered = {
                "state": health.state.value,
                "detail": health.detail,
                "ping_ms": health.ping_ms or None,
            }
            return view.model_copy(update=answered)
        job_id = claim.claim.holder.job_id
        if self._is_own(job_id, caller.user):
            return view.model_copy(update={"job": job_id})
        return view.model_copy(
            update={"detail": "for another user" if job_id else "outside of jobs"}
        )

    def _is_own(self, job_id: str, user: User) -> bool:
        try:
            return bool(job_id) and self._store.jobs.get(job_id).spec.tenant == user.name
        except InputError:  # removed just now
            return False


def _in_condition(view: DeviceView, condition: DeviceCondition) -> DeviceView:
    until = condition.quarantined_until
    changes: dict[str, Any] = {
        "drift": condition.drift,
        "drift_at": condition.drift_at,
        "quarantines": condition.quarantines,
        "quarantine_reason": condition.reason,
        "quarantined_at": condition.quarantined_at,
        "quarantined_until": until,
    }
    if until is not None and until > time.time() and view.state in ("free", "measuring"):
        changes |= {"state": "quarantined", "detail": condition.reason}
    return view.model_copy(update=changes)


def _claim_of(device: ListedDevice, claims: Iterable[ClaimStatus]) -> ClaimStatus | None:
    """The claim that has exclusive use of a device."""
    if not device.spec.is_here:
        unit = f"device {device.name}"
        return next(
            (
                c
                for c in claims
                if any(u == unit or u.startswith(f"{unit}/") for u in c.claim.units)
            ),
            None,
        )
    kind = "core" if device.spec.gpu is None else f"gpu {device.spec.gpu}"
    beginning = f"{socket.gethostname()}/{kind}"
    return next((c for c in claims if any(u.startswith(beginning) for u in c.claim.units)), None)
