"""Requests to URLs that users named: to public addresses alone, signed, without redirects."""

from __future__ import annotations

import asyncio
import ipaddress
import shutil
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tunefleet.service import sending
from tunefleet.service.problems import Refused
from tunefleet.service.sending import Sent, check_url, public_address, send, signature

from .conftest import Receiver
from .test_proxies import certificate


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's reference libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert expected == signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "https:///x",
        "https://user@example.org/",
        "https://example.org/#x",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://exam ple.org/",
        "https://ex\u00e4mple.org/",
        "https://[::1",
        "https://example.org/" + "x" * 2000,
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(Refused) as refused:
        check_url(url, private=False)
    assert (refused.value.status, bool(refused.value.cure)) == (422, True)


#: Addresses that are not of the internet, by what they are written as.
PRIVATE = {
    "IPv4": ("127.0.0.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "100.64.0.1", "0.0.0.0"),
    "link-local, multicast, broadcast": ("169.254.169.254", "224.0.0.1", "255.255.255.255"),
    "special IPv4": ("192.0.0.8", "192.88.99.1", "198.18.0.1", "203.0.113.1", "240.0.0.1"),
    "decimal, hexadecimal, octal, short IPv4": (
        "2130706433", "3232235777", "0x7f.1", "0x7f000001", "0xc0a80101", "0177.0.0.1", "127.1",
    ),
    "IPv6": ("[::1]", "[::]", "[fe80::1]", "[fd00::1]", "[fec0::1]", "[ff02::1]", "[4000::1]"),
    "documentation": ("[2001:db8::1]", "[3fff::1]"),
    "IPv4-mapped": ("[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::ffff:a9fe:a9fe]"),
    "IPv4-compatible, IPv4-translated": ("[::127.0.0.1]", "[::ffff:0:10.0.0.1]"),
    "NAT64": ("[64:ff9b::7f00:1]", "[64:ff9b::a00:1]", "[64:ff9b:1::a00:1]"),
    "6to4": ("[2002:7f00:1::]", "[2002:a00:1::1]", "[2002:c0a8:101::]"),
    "Teredo": ("[2001:0:4136:e378:8000:63bf:3fff:fdd2]",),
    "a name": ("localhost",),
}  # fmt: skip


@pytest.mark.parametrize("address", [each for kind in PRIVATE.values() for each in kind])
def test_private_addresses_are_refused_unless_allowed(address: str) -> None:
    url = f"https://{address}/"
    sent = asyncio.run(send(url, {}, b"", private=False))
    assert (sent.status, sent.error.partition(" has ")[2]) == (None, "a private address")
    assert asyncio.run(public_address(check_url(url, private=True), private=True))


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("8.8.8.8", "8.8.8.8"),
        ("134744072", "8.8.8.8"),
        ("[2606:4700::1111]", "2606:4700::1111"),
        ("[::ffff:8.8.8.8]", "::ffff:8.8.8.8"),
        ("[64:ff9b::808:808]", "64:ff9b::808:808"),
        ("[2002:808:808::1]", "2002:808:808::1"),
    ],
)
def test_public_addresses_are_accepted(host: str, address: str) -> None:
    parts = check_url(f"https://{host}/", private=False)
    found = asyncio.run(public_address(parts, private=False))
    assert ipaddress.ip_address(address) == ipaddress.ip_address(found)


@pytest.mark.parametrize(
    "addresses",
    [
        ["8.8.8.8", "10.0.0.1"],
        ["10.0.0.1", "8.8.8.8"],
        ["2606:4700::1111", "::1"],
        ["8.8.8.8", "64:ff9b::a00:1"],
    ],
)
def test_a_name_of_public_and_private_addresses_is_refused_unless_allowed(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_looked_up", answering(addresses, addresses))
    parts = check_url("https://both.example/", private=False)
    with pytest.raises(Refused, match="private address"):
        asyncio.run(public_address(parts, private=False))
    assert addresses[0] == asyncio.run(public_address(parts, private=True))


def answering(*answers: list[str]) -> Any:
    """A name server that gives these addresses in turn."""
    left = list(answers)

    async def looked_up(host: str) -> list[str]:
        return left.pop(0)

    return looked_up


def test_the_address_that_was_checked_is_the_one_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pinned: list[str] = []

    async def posted(parts: Any, address: str, headers: Any, body: bytes) -> Sent:
        pinned.append(address)
        return Sent(200)

    monkeypatch.setattr(sending, "_looked_up", answering(["8.8.8.8"], ["127.0.0.1"]))
    monkeypatch.setattr(sending, "_posted", posted)
    url = "https://rebinding.example/"
    assert asyncio.run(send(url, {}, b"", private=False)).is_done
    assert not asyncio.run(send(url, {}, b"", private=False)).is_done
    assert pinned == ["8.8.8.8"]


def test_the_host_is_named_and_no_redirect_followed(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 302, {"Location": receiver.url + "/elsewhere"}
    sent = asyncio.run(send(receiver.url, {"webhook-id": "a"}, b"{}", private=True))
    assert (sent.status, sent.is_done) == (302, False)
    [(path, headers, body)] = receiver.came
    assert (path, body, headers["webhook-id"]) == ("/hook", b"{}", "a")
    assert headers["host"].startswith("localhost:")


def test_a_receiver_that_does_not_respond_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        began = time.monotonic()
        sent = asyncio.run(send(url, {}, b"", private=True))
    assert (sent.status, time.monotonic() - began < 5) == (None, True)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_authorities_are_trusted_by_the_environment_and_proxies_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tunefleet.pem", tmp_path / "tunefleet.key")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=acknowledge, args=(listening, context), daemon=True).start()
        url = f"https://localhost:{listening.getsockname()[1]}/"
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        untrusted = asyncio.run(send(url, {}, b"{}", private=True))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tunefleet.pem"))
        trusted = asyncio.run(send(url, {}, b"{}", private=True))
    expected = "the service does not trust this certificate: self-signed certificate"
    assert (Sent(None, expected), Sent(204)) == (untrusted, trusted)


def acknowledge(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Refuse or answer two connections."""
    for _ in range(2):
        connection = listening.accept()[0]
        try:
            with context.wrap_socket(connection, server_side=True) as receiving:
                # Headers and body may come apart, and what is closed unread resets the connection.
                request = b""
                while not request.endswith(b"\r\n\r\n{}") and (more := receiving.recv(65536)):
                    request += more
                receiving.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        except OSError:  # an SSLError is one
            connection.close()
