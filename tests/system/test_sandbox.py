"""What a confined process cannot reach, tried in one: files, connections, programs, others."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import platform
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tunefleet.errors import InternalError
from tunefleet.system import sandbox, seccomp
from tunefleet.system.sandbox import Sandbox, SandboxSupport, confine, sandbox_support

pytestmark = [
    pytest.mark.skipif(not sandbox_support().seccomp, reason="this kernel filters no calls"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
with_landlock = pytest.mark.skipif(
    not sandbox_support().landlock, reason="this kernel has no Landlock"
)


class Place:
    """Folders of one test."""

    def __init__(self, folder: Path) -> None:
        self.given, self.made, self.scratch = (folder / n for n in ("given", "made", "scratch"))
        self.outside = folder / "outside"
        for each in (self.given, self.made, self.scratch, self.outside):
            each.mkdir()
        (self.given / "network").write_text("network")
        (self.outside / "secret").write_text("secret")
        (self.given / "link").symlink_to(self.outside / "secret")

    @property
    def sandbox(self) -> Sandbox:
        return Sandbox((self.given,), (self.made,))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _confined(
    place: Place, does: Callable[[], object], own: Sandbox | None = None, before: Any = None
) -> str:
    """What became of a function in a confined process: its result, or the name of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if before is not None:
                before()
            confine(own or place.sandbox, place.scratch)
            said = repr(does())
        except BaseException as error:
            said = type(error).__name__
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, encoding="utf-8") as stream:
        return stream.read()


def _child_does(does: Callable[[], object]) -> object:
    """In a child of the confined process."""
    child = os.fork()
    if child == 0:
        try:
            does()
        except OSError:
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _thread_does(does: Callable[[], object]) -> object:
    """In a thread that is started now."""
    said: list[object] = []

    def run() -> None:
        try:
            said.append(does())
        except OSError as error:
            said.append(type(error).__name__)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return said[0]


def test_what_it_is_given_it_reads_and_what_it_makes_it_writes(place: Place) -> None:
    def work() -> str:
        (place.made / "folder").mkdir()
        (place.made / "folder" / "a").write_text("made")
        (place.made / "folder" / "a").rename(place.made / "b")
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write("temporary")
        return (place.given / "network").read_text() + (place.made / "b").read_text()

    assert _confined(place, work) == "'networkmade'"
    assert (place.made / "b").read_text() == "made"


@with_landlock
@pytest.mark.parametrize(
    "path",
    [
        "outside/secret",
        "given/link",
        "/etc/passwd",
        os.path.expanduser("~/.bashrc"),
        "/proc/1/environ",
    ],
)
def test_no_other_file_is_read(place: Place, path: str) -> None:
    where = place.given.parent / path
    if not os.path.exists(where):
        pytest.skip("there is no such file here")
    assert _confined(place, lambda: where.read_bytes()) == "PermissionError"


@with_landlock
def test_nothing_is_written_outside(place: Place) -> None:
    secret, new = place.outside / "secret", place.outside / "new"
    attempts: list[Callable[[], object]] = [
        lambda: new.write_text("x"),
        lambda: secret.write_text("x"),
        lambda: os.truncate(secret, 0),
        new.mkdir,
        secret.unlink,
        lambda: secret.rename(place.made / "mine"),
        lambda: (place.given / "network").write_text("x"),
        lambda: os.link(secret, place.made / "mine"),
        lambda: os.symlink(secret, place.made / "mine"),
        lambda: os.mkfifo(place.made / "mine"),
        lambda: os.listdir(place.outside),
    ]
    errors = {_confined(place, attempt) for attempt in attempts}
    assert errors <= {"PermissionError", "OSError"}
    assert secret.read_text() == "secret"
    assert [secret] == list(place.outside.iterdir())
    assert list(place.made.iterdir()) == []


def test_permissions_and_times_stay_and_nobody_complains(place: Place) -> None:
    secret = place.outside / "secret"
    before = secret.stat()

    def change() -> None:
        os.chmod(secret, 0o777)
        os.utime(secret, (1, 1))

    assert _confined(place, change) == "None"
    assert (before.st_mode, before.st_mtime) == (secret.stat().st_mode, secret.stat().st_mtime)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_it_connects_to_nothing(place: Place, listening: int, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        attempts: list[Callable[[], object]] = [
            lambda: socket.create_connection(("127.0.0.1", listening), timeout=5),
            lambda: socket.socket(socket.AF_UNIX).connect(path),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        ]
        assert {_confined(place, attempt) for attempt in attempts} == {"PermissionError"}
        assert _confined(place, lambda: _child_does(attempts[0])) == "3"
        assert _confined(place, lambda: _thread_does(attempts[0])) == repr("PermissionError")


def test_a_socket_that_was_open_connects_to_nothing(place: Place, listening: int) -> None:
    kept: list[socket.socket] = []
    outcome = _confined(
        place,
        lambda: kept[0].connect(("127.0.0.1", listening)),
        before=lambda: kept.append(socket.socket()),
    )
    assert outcome == "PermissionError"


def test_it_starts_no_program(place: Place) -> None:
    mine = place.made / "mine"

    def own() -> object:
        mine.write_bytes(Path("/bin/true").read_bytes())
        return subprocess.run([str(mine)], check=True)

    assert _confined(place, lambda: subprocess.run(["/bin/true"], check=True)) == "PermissionError"
    assert _confined(place, lambda: os.execv(sys.executable, ["python"])) == "PermissionError"
    assert _confined(place, own) == "PermissionError"


@with_landlock
def test_it_starts_the_programs_that_it_is_given_in_the_same_sandbox(place: Place) -> None:
    given = Sandbox((place.given,), (place.made,), (Path("/bin/cat"),))
    secret = place.outside / "secret"

    def cat(path: Path) -> str:
        return subprocess.run(["/bin/cat", path], capture_output=True, text=True).stdout

    assert _confined(place, lambda: cat(place.given / "network"), given) == "'network'"
    assert _confined(place, lambda: cat(secret), given) == "''"
    assert _confined(place, lambda: subprocess.run(["/bin/ls"]), given) == "PermissionError"


@with_landlock
def test_children_and_threads_are_bound(place: Place) -> None:
    secret = place.outside / "secret"
    assert _confined(place, lambda: _child_does(secret.read_text)) == "3"
    assert _confined(place, lambda: _thread_does(secret.read_text)) == repr("PermissionError")


def test_a_thread_that_was_there_before_is_noticed(place: Place) -> None:
    waits = threading.Event()
    outcome = _confined(
        place, lambda: None, before=lambda: threading.Thread(target=waits.wait, daemon=True).start()
    )
    assert outcome == InternalError.__name__


def test_other_processes_are_out_of_reach(place: Place) -> None:
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def attach() -> int:
        return int(libc.ptrace(16, parent, 0, 0))

    assert _confined(place, attach) == "-1"
    assert _confined(place, lambda: resource.prlimit(parent, resource.RLIMIT_AS)) == (
        "PermissionError"
    )
    assert _confined(place, lambda: resource.getrlimit(resource.RLIMIT_AS)[0]) == str(
        resource.getrlimit(resource.RLIMIT_AS)[0]
    )


@pytest.mark.skipif(sandbox_support().landlock < 6, reason="Landlock knows of no signals here")
def test_no_other_process_is_sent_a_signal(place: Place) -> None:
    parent = os.getpid()
    assert _confined(place, lambda: os.kill(parent, 0)) == "PermissionError"
    assert _confined(place, lambda: os.kill(os.getpid(), 0)) == "None"


def test_calls_of_an_administrator_are_refused(place: Place) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    calls = [seccomp._REFUSED[name] for name in ("mount", "bpf", "keyctl", "userfaultfd", "setns")]
    column = 0 if platform.machine() == "x86_64" else 1

    def tried() -> set[int]:
        numbers = [call[column] for call in calls]
        return {libc.syscall(number, -1, 0, 0, 0, 0) and ctypes.get_errno() for number in numbers}

    assert _confined(place, tried) == "{1}"
    # CLONE_NEWUSER, and a limit that an administrator could raise again.
    assert _confined(place, lambda: libc.unshare(0x10000000)) == "-1"
    assert _confined(place, _raised_again) == "ValueError"


def _raised_again() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21))


def test_it_ends_by_its_own_abort(place: Place) -> None:
    """Libraries end by signals to themselves, which must not be refused."""
    faulthandler.disable()
    try:
        assert _confined(place, lambda: _child_does(os.abort)) == str(-signal.SIGABRT)
    finally:
        faulthandler.enable()


def test_without_landlock_connections_and_programs_stay_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "sandbox_support", lambda: SandboxSupport(0, True))
    secret = place.outside / "secret"
    assert _confined(place, socket.socket) == "PermissionError"
    assert _confined(place, lambda: subprocess.run(["/bin/true"])) == "PermissionError"
    assert _confined(place, lambda: os.symlink(secret, place.made / "link")) == "PermissionError"
    assert _confined(place, secret.read_text) == "'secret'"


@pytest.mark.parametrize(("landlock", "filters"), [(0, False), (0, True), (7, False), (4, True)])
def test_what_is_lacking_is_said(landlock: int, filters: bool) -> None:
    assert SandboxSupport(landlock, filters).lack
    assert not SandboxSupport(7, True).lack


def test_numbers_of_calls_are_those_of_the_kernel() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.is_file():
        pytest.skip("the kernel's headers are not installed")
    defined = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text(encoding="utf-8")))
    tables = seccomp._REFUSED | seccomp._WITHOUT_EFFECT | seccomp._PROGRAMS
    wrong = {
        name: number
        for name, (number, _) in tables.items()
        if name in defined and str(number) != defined[name]
    }
    assert wrong == {}
