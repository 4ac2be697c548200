"""Health checks and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse

from tunefleet.core.job import JobState
from tunefleet.service.caller import ByAdmin
from tunefleet.store import each_job

router = APIRouter(tags=["health"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process responds."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse)
def readyz(request: Request) -> str:
    """The store responds too."""
    request.app.state.store.events.last()
    return "ok\n"


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request, caller: ByAdmin) -> PlainTextResponse:
    """Metrics for Prometheus."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    store, registry = request.app.state.store, CollectorRegistry()
    events = Gauge("tunefleet_events_total", "Events that were kept.", registry=registry)
    events.set(store.events.last())
    jobs = Gauge("tunefleet_jobs_open", "Jobs that have not ended.", ["user"], registry=registry)
    for job in each_job(store.jobs, state=JobState.RUNNING):
        jobs.labels(job.spec.tenant or "").inc()
    claims = store.coordination.claims()
    leases = Gauge("tunefleet_leases", "Claims of cores and devices.", ["state"], registry=registry)
    for state, granted in (("held", True), ("waiting", False)):
        leases.labels(state).set(sum(claim.granted is granted for claim in claims))
    return PlainTextResponse(
        generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
