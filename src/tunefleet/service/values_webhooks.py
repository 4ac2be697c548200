"""What the API takes and gives of webhooks, as models of the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from tunefleet.service.values import AskedBody, Page

#: The types of events that webhooks receive.
EventType = Literal[
    "job.started",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "job.expired",
    "job.interrupted",
]
#: Hours for which the secret before a rotation stays valid: a week at most.
OverlapHours = Annotated[float, Field(ge=0, le=168, allow_inf_nan=False)]


class AskedWebhook(AskedBody):
    """A URL that receives events of one's jobs: those of `events`, or all where it is empty."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: list[EventType] = Field(default_factory=list, max_length=20)


class ChangedWebhook(AskedBody):
    """Whether deliveries are disabled."""

    disabled: bool


class AskedRotation(AskedBody):
    """For how many hours messages are signed with the old secret as well."""

    overlap_hours: OverlapHours = 24.0


class WebhookView(BaseModel):
    """A webhook; times are seconds since the epoch. `secret` is given by its creation and by a
    rotation alone; until `previous_until` messages are signed with the secret before it as well.
    `failures` counts the failed attempts of the next delivery, which is retried at `next_at`;
    `last` is the result of the last attempt; `disabled` is why nothing is sent."""

    id: str
    url: str
    events: list[str]
    created_at: float
    failures: int
    next_at: float | None = None
    last: str = ""
    last_at: float | None = None
    disabled: str = ""
    secret: str | None = None
    previous_until: float | None = None


class WebhookList(BaseModel):
    webhooks: list[WebhookView]


class WebhookTest(BaseModel):
    """The result of a `ping`: the status of the response, or in `detail` why there was none."""

    delivered: bool
    status: int | None
    detail: str


class DeliveryView(BaseModel):
    """One message; times are seconds since the epoch. `id` is its `webhook-id`, `happened_at` the
    time of its event and `last_at` that of the last of its `attempts`. `status` is the HTTP status
    of that attempt, null where `error` says why there was none."""

    id: str
    event: str
    job: str
    happened_at: float
    attempts: int
    last_at: float
    delivered: bool
    status: int | None
    error: str


class DeliveryPage(Page):
    """The newest event first."""

    deliveries: list[DeliveryView]
