"""Requests and replies through the socket of a home's server."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from tunefleet.core.home import Home
from tunefleet.errors import InputError
from tunefleet.fleet import server_socket
from tunefleet.fleet.server_socket import ServerReply, ServerRequest, ServerSocket, ask


def test_nobody_answers_where_no_server_is(tmp_path: Path) -> None:
    assert ask(Home(tmp_path), ServerRequest("hello")) is None
    assert ask(Home(tmp_path / "nowhere"), ServerRequest("hello")) is None


def test_a_question_reaches_whoever_answers(tmp_path: Path) -> None:
    heard: list[ServerRequest] = []

    def answer(asked: ServerRequest) -> ServerReply:
        heard.append(asked)
        return ServerReply(jobs=2)

    with ServerSocket(Home(tmp_path), answer):
        answered = ask(Home(tmp_path), ServerRequest("take", ("a", "b")))
    assert answered is not None
    assert (answered.jobs, answered.pid > 0) == (2, True)
    assert heard == [ServerRequest("take", ("a", "b"))]
    assert ask(Home(tmp_path), ServerRequest("hello")) is None


def test_only_its_user_may_ask(tmp_path: Path) -> None:
    with ServerSocket(Home(tmp_path), lambda asked: ServerReply()) as opened:
        assert stat.S_IMODE(opened.path.stat().st_mode) == 0o600


def test_a_home_may_lie_deeper_than_a_socket_has_a_name_for(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    with ServerSocket(Home(deep), lambda asked: ServerReply(jobs=1)):
        answered = ask(Home(deep), ServerRequest("hello"))
    assert answered is not None
    assert answered.jobs == 1


def test_the_socket_of_a_killed_server_is_no_server(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(Home(tmp_path).server_socket))
    left.close()
    assert ask(Home(tmp_path), ServerRequest("hello")) is None
    with ServerSocket(Home(tmp_path), lambda asked: ServerReply()):
        assert ask(Home(tmp_path), ServerRequest("hello")) is not None


def test_a_server_of_another_version_is_named_with_how_to_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerSocket(Home(tmp_path), lambda asked: ServerReply(version="0.0.1")):
        with pytest.raises(InputError, match=r"version 0\.0\.1 .*serve --stop"):
            ask(Home(tmp_path), ServerRequest("hello"))
        assert ask(Home(tmp_path), ServerRequest("stop")) is not None
    with ServerSocket(Home(tmp_path), lambda asked: ServerReply(jobs=3)):
        answered = ask(Home(tmp_path), ServerRequest("stop", version="0.0.1"))
        assert answered is not None
        assert answered.jobs == 3


@pytest.mark.parametrize(
    "line",
    [b"\n", b"[]\n", b'{"verb": "dig", "job_ids": [], "version": "1"}\n', b"[" * 9000 + b"\n",
     b'{"verb": "take", "job_ids": [1], "version": "1"}\n', b"\xff\xfe\n"],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_the_socket_stays_open(
    tmp_path: Path, line: bytes
) -> None:
    with ServerSocket(Home(tmp_path), lambda asked: ServerReply()):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(Home(tmp_path).server_socket))
            connection.sendall(line)
            assert b"that is no request" in server_socket._line(connection)
        assert ask(Home(tmp_path), ServerRequest("hello")) is not None
