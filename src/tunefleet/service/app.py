"""The application: what each path of the API does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tunefleet.core.home import Home
from tunefleet.fleet.server_socket import own_version
from tunefleet.runs.uploads import admit
from tunefleet.service import (
    pages,
    pages_accounts,
    pages_fleet,
    pages_jobs,
    routes_accounts,
    routes_artifacts,
    routes_costmodels,
    routes_devices,
    routes_health,
    routes_jobs,
    routes_networks,
    routes_records,
    routes_webhooks,
)
from tunefleet.service.admission import Admission
from tunefleet.service.audit import AuditLog, ClientAddresses
from tunefleet.service.caller import address_rates, user_rates
from tunefleet.service.curves import JobHistories
from tunefleet.service.devices import ServiceDevices
from tunefleet.service.jobs import ServiceJobs
from tunefleet.service.news import News
from tunefleet.service.problems import handle_errors
from tunefleet.service.tokens import KnownTokens
from tunefleet.service.uploads import UploadCheck, Uploads
from tunefleet.service.webhooks import Deliveries
from tunefleet.store import Store

_GIB = 1 << 30


def _nobody(job_ids: Sequence[str]) -> None:
    """Nobody looks for jobs."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`most_bytes`: the largest upload that is accepted. `private_webhooks`: webhooks may have
    private addresses, and http."""

    most_bytes: int = 4 * _GIB
    private_webhooks: bool = False


def service_app(
    home: Path,
    store: Store,
    settings: ServiceSettings | None = None,
    wake: Callable[[Sequence[str]], None] = _nobody,
    check: UploadCheck = admit,
) -> FastAPI:
    """The service of a home. `wake` is called with jobs that are to be taken up, `check` with what
    was sent. The application is the only one of its home, and owns neither."""
    chosen = settings or ServiceSettings()
    news, admission = News(store), Admission(home, store)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with contextlib.closing(admission):
            async with news.looking(), app.state.deliveries.running():
                yield

    app = FastAPI(
        title="tunefleet",
        version=own_version(),
        summary="Autotuning as a service",
        lifespan=lifespan,
        redoc_url=None,
        docs_url=None,
    )
    app.state.home, app.state.store, app.state.news, app.state.wake = Home(home), store, news, wake
    app.state.jobs = ServiceJobs(home, store)
    app.state.histories = JobHistories(store)
    app.state.devices = ServiceDevices(Home(home), store)
    app.state.admission = admission
    private = chosen.private_webhooks
    app.state.settings = chosen
    app.state.deliveries = Deliveries(store, app.state.jobs, private=private)
    app.state.uploads = Uploads(Home(home), store, chosen.most_bytes, admission, check)
    app.state.user_rates, app.state.address_rates = user_rates(), address_rates()
    app.state.tokens = KnownTokens(store.accounts)
    app.state.audit = AuditLog(Home(home).audit_log)
    handle_errors(app, Home(home).bugs)
    app.add_middleware(CarefulHeaders)
    app.add_middleware(ClientAddresses)
    for routes in (
        routes_health,
        routes_networks,
        routes_jobs,
        routes_artifacts,
        routes_records,
        routes_devices,
        routes_costmodels,
        routes_webhooks,
        routes_accounts,
        pages,
        pages_jobs,
        pages_fleet,
        pages_accounts,
    ):
        app.include_router(routes.router)
    app.mount("/static", pages.static_files())
    return app


#: Headers of every response that does not set them itself.
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cache-control": b"no-store",
    b"content-security-policy": (
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
}


class CarefulHeaders:
    """Adds `_HEADERS` to responses; streams pass as they come."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                further = [(n, v) for n, v in _HEADERS.items() if n not in given]
                message["headers"] = [*message["headers"], *further]
            await send(message)

        await self._app(scope, receive, sent)
