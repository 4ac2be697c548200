"""The door of a server: questions and answers through a socket of its home."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from tunefleet.core.home import Home
from tunefleet.errors import InputError
from tunefleet.fleet import door
from tunefleet.fleet.door import Answer, Door, Question, ask


def test_nobody_answers_where_no_server_is(tmp_path: Path) -> None:
    assert ask(Home(tmp_path), Question("hello")) is None
    assert ask(Home(tmp_path / "nowhere"), Question("hello")) is None


def test_a_question_reaches_whoever_answers(tmp_path: Path) -> None:
    heard: list[Question] = []

    def answer(asked: Question) -> Answer:
        heard.append(asked)
        return Answer(jobs=2)

    with Door(Home(tmp_path), answer):
        answered = ask(Home(tmp_path), Question("take", ("a", "b")))
    assert answered is not None
    assert (answered.jobs, answered.pid > 0) == (2, True)
    assert heard == [Question("take", ("a", "b"))]
    assert ask(Home(tmp_path), Question("hello")) is None


def test_only_its_user_may_ask(tmp_path: Path) -> None:
    with Door(Home(tmp_path), lambda asked: Answer()) as opened:
        assert stat.S_IMODE(opened.path.stat().st_mode) == 0o600


def test_a_home_may_lie_deeper_than_a_socket_has_a_name_for(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    with Door(Home(deep), lambda asked: Answer(jobs=1)):
        answered = ask(Home(deep), Question("hello"))
    assert answered is not None
    assert answered.jobs == 1


def test_the_socket_of_a_killed_server_is_no_server(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(Home(tmp_path).door))
    left.close()
    assert ask(Home(tmp_path), Question("hello")) is None
    with Door(Home(tmp_path), lambda asked: Answer()):
        assert ask(Home(tmp_path), Question("hello")) is not None


def test_a_server_of_another_version_is_named_with_how_to_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Door(Home(tmp_path), lambda asked: Answer(version="0.0.1")):
        with pytest.raises(InputError, match=r"version 0\.0\.1 .*serve --stop"):
            ask(Home(tmp_path), Question("hello"))
        assert ask(Home(tmp_path), Question("stop")) is not None
    with Door(Home(tmp_path), lambda asked: Answer(jobs=3)):
        answered = ask(Home(tmp_path), Question("stop", version="0.0.1"))
        assert answered is not None
        assert answered.jobs == 3


@pytest.mark.parametrize(
    "line",
    [b"\n", b"[]\n", b'{"verb": "dig", "job_ids": [], "version": "1"}\n', b"[" * 9000 + b"\n",
     b'{"verb": "take", "job_ids": [1], "version": "1"}\n', b"\xff\xfe\n"],
)  # fmt: skip
def test_what_is_no_question_is_refused_and_the_door_stays_open(
    tmp_path: Path, line: bytes
) -> None:
    with Door(Home(tmp_path), lambda asked: Answer()):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(Home(tmp_path).door))
            connection.sendall(line)
            assert b"that is no question" in door._line(connection)
        assert ask(Home(tmp_path), Question("hello")) is not None
