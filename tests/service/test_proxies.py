"""The service behind reverse proxies, with the configuration of docs/guide/operating.md."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tunefleet.core.events import Note
from tunefleet.service.app import ServiceSettings
from tunefleet.service.running import HttpService, Listening

from .conftest import World

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "operating.md"
ASKED = {"network": "zoo:tiny_cnn", "budget": {"trials": 12}, "threads": 1}
#: What a client pretends.
FORGED = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}


@dataclass(frozen=True)
class Proxied:
    """A service behind a proxy: both addresses, and what trusts the proxy's certificate."""

    url: str
    direct: str
    trust: ssl.SSLContext


def certificate(folder: Path) -> ssl.SSLContext:
    """A certificate of localhost; a context that trusts it."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(folder / "tunefleet.key"), "-out", str(folder / "tunefleet.pem")]
    subprocess.run(command, check=True, capture_output=True)
    return ssl.create_default_context(cafile=str(folder / "tunefleet.pem"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def documented(kind: str) -> str:
    """A configuration of the guide."""
    [block] = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "127.0.0.1:8080" in block
    return str(block)


def nginx(folder: Path, port: int, inner: int) -> list[str]:
    server = documented("nginx").replace("listen 443", f"listen 127.0.0.1:{port}")
    server = server.replace("/etc/ssl/", f"{folder}/").replace("tunefleet.example.org", "localhost")
    paths = "\n".join(
        f"{each}_temp_path {folder}/{each};"
        for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = f"pid {folder}/nginx.pid;\nerror_log stderr;\ndaemon off;\nevents {{}}\n"
    text += f"http {{\naccess_log off;\n{paths}\n{server}}}\n"
    (folder / "nginx.conf").write_text(
        text.replace("127.0.0.1:8080", f"127.0.0.1:{inner}"), encoding="utf-8"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, inner: int) -> list[str]:
    site = documented("text").replace("tunefleet.example.org", f"https://localhost:{port}")
    tls = f"    tls {folder}/tunefleet.pem {folder}/tunefleet.key\n    reverse_proxy"
    text = "{\n    admin off\n    auto_https disable_redirects\n}\n" + site.replace(
        "    reverse_proxy", tls
    )
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{inner}")
    (folder / "Caddyfile").write_text(text, encoding="utf-8")
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


PROXIES: dict[str, Callable[[Path, int, int], list[str]]] = {"nginx": nginx, "caddy": caddy}


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < end
                time.sleep(0.05)
        try:
            yield
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture(params=PROXIES)
def proxied(
    request: pytest.FixtureRequest, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxied]:
    name = request.param
    if shutil.which(name) is None or shutil.which("openssl") is None:
        pytest.skip(f"{name} or openssl is not installed")
    folder = tmp_path / "proxy"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    trust, port = certificate(folder), free_port()
    listening = Listening(port=0, proxies=("127.0.0.1",))
    with HttpService(world.home, listening, ServiceSettings(), lambda ids: None) as http:
        inner = int(http.url.rpartition(":")[2])
        with running(PROXIES[name](folder, port, inner), port):
            yield Proxied(f"https://localhost:{port}", http.url, trust)


def audited(world: World, did: str) -> list[dict[str, Any]]:
    lines = (world.home / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry["did"] == did]


def test_events_are_streamed_as_they_come(world: World, proxied: Proxied) -> None:
    ann = world.user("ann")
    with httpx.Client(base_url=proxied.url, headers=ann, verify=proxied.trust) as http:
        job = http.post("/v1/jobs", json=ASKED).raise_for_status().json()["id"]
        lines, accept = [], {"Accept": "text/event-stream"}
        with http.stream("GET", f"/v1/jobs/{job}/events", headers=accept) as stream:
            arriving = stream.iter_lines()
            for number in range(3):
                kept_at = time.monotonic()
                world.store.events.append(job, time.time(), [Note(f"note {number}")])
                lines += [next(line for line in arriving if line.startswith("data:"))]
                assert time.monotonic() - kept_at < 5
    assert [json.loads(line[5:])["text"] for line in lines] == ["note 0", "note 1", "note 2"]


def test_parts_of_a_file_are_as_large_as_a_browser_sends_them(
    world: World, proxied: Proxied
) -> None:
    content = bytes(8 << 20)  # without configuration nginx accepts 1 MiB
    digest = hashlib.sha256(content + b"more").hexdigest()
    with httpx.Client(
        base_url=proxied.url, headers=world.user("ann"), verify=proxied.trust, timeout=60
    ) as http:
        asked = {"digest": digest, "name": "net.onnx", "size": len(content) + 4}
        assert http.post("/v1/uploads", json=asked).status_code == 201
        headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
        part = http.patch(f"/v1/uploads/{digest}", content=content, headers=headers)
        assert part.status_code == 200, part.text
        assert part.json()["offset"] == len(content)


def test_the_address_and_the_scheme_are_those_that_the_proxy_reports(
    world: World, proxied: Proxied
) -> None:
    token = world.user("ann")["Authorization"].removeprefix("Bearer ")
    transport = httpx.HTTPTransport(verify=proxied.trust, local_address="127.0.0.2")
    with httpx.Client(base_url=proxied.url, transport=transport, headers=FORGED) as http:
        # A browser's requests are accepted where their origin is the service's own URL, as links
        # have it.
        origin = {"Origin": proxied.url, "Sec-Fetch-Site": "same-origin"}
        signed_in = http.post("/v1/session", json={"token": token}, headers=origin)
        assert signed_in.status_code == 204, signed_in.text
        cookie = signed_in.headers["set-cookie"].lower()
        assert "secure" in cookie
        assert "httponly" in cookie
        made = http.post("/v1/jobs", json=ASKED, headers=origin)
        assert made.status_code == 201, made.text
        assert http.get(made.headers["location"]).status_code == 200
    for did in ("sign in", "submit"):
        assert [entry["address"] for entry in audited(world, did)] == ["127.0.0.2"]


def test_headers_of_others_are_ignored(world: World, proxied: Proxied) -> None:
    token = world.user("ann")["Authorization"].removeprefix("Bearer ")
    transport = httpx.HTTPTransport(local_address="127.0.0.3")
    with httpx.Client(base_url=proxied.direct, transport=transport, headers=FORGED) as http:
        origin = {"Origin": proxied.direct}
        signed_in = http.post("/v1/session", json={"token": token}, headers=origin)
        assert signed_in.status_code == 204, signed_in.text
        assert "secure" not in signed_in.headers["set-cookie"].lower()
        over_tls = {"Origin": proxied.direct.replace("http:", "https:")}
        refused = http.post("/v1/session", json={"token": token}, headers=over_tls)
        assert refused.status_code == 403
    assert [entry["address"] for entry in audited(world, "sign in")] == ["127.0.0.3"]
