"""Who may do what: tokens, sessions, rates (every role against every route: test_roles.py)."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefleet.service.caller import COOKIE, Rates
from tunefleet.service.tokens import KnownTokens, digest_of, new_token, valid_token
from tunefleet.store import MemoryStore, User

from .conftest import World

#: What needs no token.
OPEN = {("get", "/healthz"), ("get", "/readyz"), ("post", "/v1/session")}
PLACES = {"name": "ann", "reader": "ann"}


def routes(world: World) -> list[tuple[str, str]]:
    app: Any = world.client.app
    paths = app.openapi()["paths"]
    return [(method, path) for path, methods in paths.items() for method in methods]


def called(world: World, method: str, path: str, headers: dict[str, str]) -> int:
    filled = re.sub(r"\{(\w+)\}", lambda m: PLACES.get(m[1], "0" * 32), path)
    filled = filled.replace("/v1/uploads/" + "0" * 32, "/v1/uploads/" + "0" * 64)
    filled = filled.replace("/v1/networks/" + "0" * 32, "/v1/networks/" + "0" * 64)
    filled = filled.replace("/v1/tokens/" + "0" * 32, "/v1/tokens/" + "0" * 16)
    code: int = world.client.request(method, filled, headers=headers).status_code
    return code


def test_nobody_is_answered_without_a_valid_token(world: World) -> None:
    over, token = new_token("ann", time.time(), lives_s=-1.0)
    world.user("ann")
    world.store.accounts.put_token(token)
    for bearer in ("", "tf_unknown", over):
        world.client.app.state.address_rates = Rates(1e6, 1e6)  # type: ignore[attr-defined]
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        for method, path in routes(world):
            if (method, path) not in OPEN:
                assert called(world, method, path, headers) == 401, (method, path)


def test_an_admin_by_a_plain_token_is_a_user(world: World) -> None:
    world.user("root", admin=True)
    text, token = new_token("root", time.time())
    world.store.accounts.put_token(token)
    headers = {"Authorization": f"Bearer {text}"}
    assert world.client.get("/v1/users", headers=headers).status_code == 403
    made = world.client.post("/v1/tokens", json={"admin": True}, headers=headers)
    assert made.status_code == 403


def test_tokens_are_shown_once_and_end(world: World) -> None:
    ann = world.user("ann")
    made = world.client.post("/v1/tokens", json={"label": "ci"}, headers=ann).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert world.client.get("/v1/me", headers=headers).json()["name"] == "ann"
    listed = world.client.get("/v1/tokens", headers=ann).json()["tokens"]
    assert [t["token"] for t in listed] == [None, None]
    assert made["token"].encode() not in (world.home / "store.sqlite").read_bytes()
    assert world.client.delete(f"/v1/tokens/{made['id']}", headers=ann).status_code == 204
    assert world.client.get("/v1/me", headers=headers).status_code == 401


def test_a_disabled_user_may_do_nothing(world: World) -> None:
    ann, root = world.user("ann"), world.user("root", admin=True)
    assert world.client.get("/v1/me", headers=ann).status_code == 200
    changed = world.client.patch("/v1/users/ann", json={"disabled": True}, headers=root)
    assert changed.json()["disabled"]
    assert world.client.get("/v1/me", headers=ann).status_code == 401
    locked = world.client.patch("/v1/users/root", json={"admin": False}, headers=root)
    assert locked.status_code == 409


def test_a_browser_signs_in_for_its_own_site_alone(world: World) -> None:
    text = world.user("ann")["Authorization"].removeprefix("Bearer ")
    own = {"Origin": "http://testserver"}
    elsewhere = {"Origin": "http://evil.example"}
    sign_in = {"token": text}
    assert world.client.post("/v1/session", json=sign_in, headers=elsewhere).status_code == 403
    answer = world.client.post("/v1/session", json=sign_in, headers=own)
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert world.client.get("/v1/me").json()["name"] == "ann"
    made = {"label": "x"}
    assert world.client.post("/v1/tokens", json=made, headers=elsewhere).status_code == 403
    assert world.client.post("/v1/tokens", json=made).status_code == 403
    assert world.client.post("/v1/tokens", json=made, headers=own).status_code == 201
    session = world.client.cookies[COOKIE]
    bearer = {"Authorization": f"Bearer {session}"}
    assert TestClient(world.client.app).get("/v1/me", headers=bearer).status_code == 401
    assert world.client.delete("/v1/session", headers=own).status_code == 204
    assert world.store.accounts.token(digest_of(session)) is None


def test_too_many_requests_are_refused_for_a_while(world: World) -> None:
    ann, bob = world.user("ann"), world.user("bob")
    world.client.app.state.user_rates = Rates(2, 0.5)  # type: ignore[attr-defined]
    codes = [world.client.get("/v1/me", headers=ann).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    refused = world.client.get("/v1/me", headers=ann)
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert world.client.get("/v1/me", headers=bob).status_code == 200


@pytest.mark.parametrize("name", ["", "*", "Ann", "a b", "../x", "x" * 65])
def test_a_name_that_is_none_is_refused(world: World, name: str) -> None:
    root = world.user("root", admin=True)
    assert world.client.post("/v1/users", json={"name": name}, headers=root).status_code == 422


def test_the_last_use_is_kept_now_and_then() -> None:
    accounts = MemoryStore().accounts
    accounts.put_user(User("ann"))
    text, token = new_token("ann", 0.0)
    accounts.put_token(token)
    used = []
    for now in (10.0, 20.0, 100.0):
        assert valid_token(accounts, text, now) is not None
        used.append(accounts.tokens("ann")[0].last_used_at)
    assert used == [10.0, 10.0, 100.0]


def test_what_ends_a_token_counts_at_once_and_elsewhere_a_second_later(world: World) -> None:
    root, ann = world.user("root", admin=True), world.user("ann")
    get_me = partial(world.client.get, "/v1/me", headers=ann)
    assert get_me().status_code == 200
    disabled = {"disabled": True}
    assert world.client.patch("/v1/users/ann", json=disabled, headers=root).status_code == 200
    assert get_me().status_code == 401
    assert world.client.patch("/v1/users/ann", json={"disabled": False}, headers=root).is_success
    assert get_me().status_code == 200
    [token] = world.client.get("/v1/tokens", headers=ann).json()["tokens"]
    assert world.client.delete(f"/v1/tokens/{token['id']}", headers=ann).status_code == 204
    assert get_me().status_code == 401


def test_a_token_that_another_process_removed_counts_for_a_second() -> None:
    accounts = MemoryStore().accounts
    accounts.put_user(User("ann"))
    text, token = new_token("ann", 0.0, lives_s=10.5)
    accounts.put_token(token)
    known = KnownTokens(accounts)
    assert known.valid(text, 10.0) == (accounts.user("ann"), token)
    assert known.valid(text, 10.6) is None  # it is over
    accounts.remove_token(token.digest)
    assert known.valid(text, 10.4) is not None
    assert known.valid(text, 11.1) is None
    assert known.valid("tf_other", 11.1) is None
