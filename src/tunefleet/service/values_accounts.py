"""Users, tokens and readers of records, as the API has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from tunefleet.service.values import AskedBody, Page


class AskedQuota(AskedBody):
    """The limits of a user; null is no limit. `stored_bytes` counts uploaded files and outputs
    of `run` jobs, `device_s` the device seconds of a day."""

    jobs: Annotated[int, Field(ge=0, le=2**53)] | None = None
    stored_bytes: Annotated[int, Field(ge=0, le=2**53)] | None = None
    device_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class AskedUser(AskedBody):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    admin: bool = False
    quota: AskedQuota = AskedQuota()


class ChangedUser(AskedBody):
    """The values to change."""

    admin: bool | None = None
    disabled: bool | None = None
    quota: AskedQuota | None = None


class UserView(BaseModel):
    name: str
    admin: bool
    disabled: bool
    created_at: float
    quota: AskedQuota


class UserPage(Page):
    users: list[UserView]


class AskedToken(AskedBody):
    """A new token for oneself, or by an admin for another user."""

    label: Annotated[str, Field(max_length=100)] = ""
    user: Annotated[str, Field(max_length=64)] | None = None
    admin: bool = False
    days: Annotated[float, Field(gt=0, le=3650)] | None = 365


class TokenView(BaseModel):
    """A token; `token` is its text, given once."""

    id: str
    prefix: str
    user: str
    label: str
    admin: bool
    session: bool
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    token: str | None = None


class AskedSession(AskedBody):
    """A token with which a browser signs in."""

    token: Annotated[str, Field(max_length=200)]


class TokenList(BaseModel):
    tokens: list[TokenView]


class AskedShare(AskedBody):
    """A reader of one's records: a user, or `*` for all."""

    reader: Annotated[str, Field(min_length=1, max_length=64)]


class ShareList(BaseModel):
    readers: list[str]
