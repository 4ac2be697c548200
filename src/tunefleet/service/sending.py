"""HTTP requests to URLs that users named: to public addresses alone, without redirects."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from urllib.parse import SplitResult, urlsplit

import httpx2 as httpx

from tunefleet.service.problems import Refused

#: Seconds of one delivery, with its connection.
_TIMEOUT_S = 15.0
_LONGEST_URL = 2000
_SECRET = "whsec_"
#: Of a secret.
_SECRET_BYTES = 32
_PORTS = {"https": 443, "http": 80}
#: Look-ups that time out occupy these threads, and no others of the service.
_LOOKUPS = ThreadPoolExecutor(4, "tunefleet-lookups")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: IPv4 addresses behind a translator (NAT64, RFC 6052).
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
#: The only IPv6 addresses that are assigned to hosts of the internet.
_UNICAST = ipaddress.ip_network("2000::/3")
#: Special ranges that Python 3.11 takes for global: protocol assignments, relays of 6to4, and
#: addresses of documentation.
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of an attempt: the status of the response, or why there was none."""

    status: int | None
    error: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged."""
        return self.status is not None and 200 <= self.status < 300

    def __str__(self) -> str:
        return self.error or f"HTTP {self.status}"


def new_secret() -> str:
    """A secret to sign with, in the form of Standard Webhooks."""
    return _SECRET + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, at: int, body: bytes) -> str:
    """The header `webhook-signature` of Standard Webhooks 1.0.0: HMAC-SHA256 over the id, the
    seconds since the epoch and the body."""
    key = base64.b64decode(secret.removeprefix(_SECRET))
    signed = f"{message_id}.{at}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def check_url(url: str, *, private: bool) -> SplitResult:
    """The parts of a URL that may receive messages. Raises Refused."""
    reason, cure = "", "such as https://example.org/hook"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused(422, "this is no URL", cure=cure) from None
    if parts.scheme not in (("https", "http") if private else ("https",)):
        reason = "its scheme is not https"
        if parts.scheme == "http":
            cure = "use https, or ask the operator: serve --private-webhooks"
    elif not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        reason = "it names no host"
    elif parts.username is not None or parts.password is not None or parts.fragment:
        reason = "it has a user, a password or a fragment"
    elif port == 0 or len(url) > _LONGEST_URL:
        reason = "its port or its length cannot be"
    if reason:
        raise Refused(422, f"{reason}: {url[:80]!a}", cure=cure)
    return parts


async def public_address(parts: SplitResult, *, private: bool) -> str:
    """The address of a URL's host, looked up now. Raises Refused where there is none, and where any
    of them is not public, unless private ones are allowed."""
    host = parts.hostname or ""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            found = await _looked_up(host)
    except (OSError, UnicodeError):  # a TimeoutError is one
        raise Refused(422, f"{host} has no address", cure="correct the name") from None
    addresses = [ipaddress.ip_address(text) for text in found]
    if not private and not all(map(_is_public, addresses)):
        raise Refused(
            422,
            f"{host} has a private address",
            cure="give a public one, or ask the operator: serve --private-webhooks",
        )
    return str(addresses[0])


async def _looked_up(host: str) -> list[str]:
    """The addresses of a host."""
    look_up = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    return [str(entry[4][0]).partition("%")[0] for entry in found]


def _is_public(address: _Address) -> bool:
    """Whether an address is one of the internet; of an IPv4 address within an IPv6 one, that."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _TRANSLATED:
            inner = ipaddress.IPv4Address(address.packed[-4:])
        if inner is not None:
            return _is_public(inner)
        if address not in _UNICAST or address.teredo is not None:
            return False
    special = address.is_multicast or address.is_reserved or any(address in n for n in _SPECIAL)
    return address.is_global and not special


async def send(url: str, headers: dict[str, str], body: bytes, *, private: bool) -> Sent:
    """Post to a URL: to the address that was resolved and checked, and to no other. Redirects are
    not followed, and only the status of the response is read."""
    try:
        parts = check_url(url, private=private)
        async with asyncio.timeout(_TIMEOUT_S):
            address = await public_address(parts, private=private)
            return await _posted(parts, address, headers, body)
    except Refused as error:
        return Sent(None, error.detail)
    except TimeoutError:
        return Sent(None, f"no answer in {_TIMEOUT_S:.0f} s")
    except (httpx.HTTPError, OSError) as error:
        return Sent(None, _reason(error)[:200])


def _reason(error: Exception) -> str:
    """Why there was no response."""
    text = str(error) or "the connection was closed"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        cause = text.partition("verify failed: ")[2].partition(" (_ssl")[0]
        return f"the service does not trust this certificate: {cause}"
    return f"{type(error).__name__}: {text}"


async def _posted(parts: SplitResult, address: str, headers: dict[str, str], body: bytes) -> Sent:
    port = parts.port or _PORTS[parts.scheme]
    place = f"[{address}]" if ":" in address else address
    pinned = parts._replace(netloc=f"{place}:{port}").geturl()
    # A new connection: a kept one may have been verified for another name at that address.
    limits = httpx.Limits(max_keepalive_connections=0)
    # From the environment come only trusted authorities (SSL_CERT_FILE), since a proxy would
    # connect to other addresses.
    async with (
        httpx.AsyncClient(
            verify=httpx.create_ssl_context(), trust_env=False, limits=limits, timeout=_TIMEOUT_S
        ) as client,
        client.stream(
            "POST",
            pinned,
            content=body,
            headers={**headers, "Host": parts.netloc, "User-Agent": "tunefleet"},
            extensions={"sni_hostname": parts.hostname},
        ) as answer,
    ):
        return Sent(answer.status_code)
