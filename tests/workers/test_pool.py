from __future__ import annotations

import ctypes
import errno
import json
import multiprocessing.synchronize
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from tunefleet.errors import ForeignError, InputError, InternalError, SetupError, foreign
from tunefleet.workers.pool import CallEnd, CallFailure, CallScope, WorkerConfig, WorkerPool

pytestmark = pytest.mark.tvm


def segfault() -> None:
    ctypes.string_at(0)


def hang() -> None:
    while True:
        time.sleep(1)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def exhaust_memory() -> int:
    return len(bytearray(64 << 30))


def fail() -> None:
    raise ForeignError("first line\nthe cause")


def fail_in_json() -> str:
    return json.dumps(object())


def fail_in_a_named_call() -> int:
    with foreign():
        return int("one")


def return_what_cannot_travel() -> object:
    return threading.Lock()


def refuse() -> None:
    raise InputError("wrong", cure="fix it")


def double(value: int) -> int:
    return 2 * value


def sometimes_die(value: int) -> int:
    if value % 3 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def die_twice(counter: str) -> int:
    """Kills its worker the first two times it is called."""
    with Path(counter).open("a", encoding="utf-8") as file:
        file.write("x")
    if len(Path(counter).read_text(encoding="utf-8")) <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    log = tmp_path_factory.mktemp("pool") / "log"
    with WorkerPool(2, WorkerConfig(threads=1, memory_gib=2, log_path=str(log))) as made:
        yield made


@pytest.mark.parametrize(
    ("function", "end", "text"),
    [
        (segfault, CallEnd.CRASH, "SIGSEGV"),
        (exhaust_memory, CallEnd.MEMORY, "memory"),
        (fail, CallEnd.ERROR, "the cause"),
        (fail_in_a_named_call, CallEnd.ERROR, "invalid literal"),
    ],
)
def test_a_failed_call_is_a_value_with_its_kind(
    pool: WorkerPool, function: object, end: CallEnd, text: str
) -> None:
    found = pool.call(function)  # type: ignore[arg-type]
    assert isinstance(found, CallFailure)
    assert found.end is end
    assert text in found.text
    assert pool.call(double, 21) == 42


def test_a_call_that_hangs_is_stopped_at_its_limit(pool: WorkerPool) -> None:
    started = time.monotonic()
    found = pool.call(hang, timeout_s=0.5)
    assert isinstance(found, CallFailure)
    assert found.end is CallEnd.TIMEOUT
    assert time.monotonic() - started < 5
    assert pool.call(double, 4) == 8


def test_results_come_in_order_around_dying_workers(pool: WorkerPool) -> None:
    found = pool.map(sometimes_die, [(i,) for i in range(9)], timeout_s=30)
    assert [f if isinstance(f, int) else f.end for f in found] == [
        i if i % 3 else CallEnd.CRASH for i in range(9)
    ]


def test_errors_of_the_tree_are_raised(pool: WorkerPool) -> None:
    with pytest.raises(InputError, match="wrong"):
        pool.call(refuse)


@pytest.mark.parametrize("function", [fail_in_json, return_what_cannot_travel])
def test_any_other_error_is_a_bug(pool: WorkerPool, function: Callable[[], object]) -> None:
    with pytest.raises(InternalError):
        pool.call(function)
    assert pool.call(double, 21) == 42


def test_what_keeps_a_worker_from_getting_ready_is_raised_by_its_first_call(tmp_path: Path) -> None:
    log = str(tmp_path / "worker.log")
    misspelt = WorkerConfig(1, 1.0, log, cores=("none",))  # type: ignore[arg-type]
    with WorkerPool(1, misspelt) as pool, pytest.raises(InternalError, match="TypeError"):
        pool.call(double, 21)
    log = str(tmp_path)
    with WorkerPool(1, WorkerConfig(1, 1.0, log)) as pool, pytest.raises(SetupError, match="Is a"):
        pool.call(double, 21)


def test_a_call_is_poison_only_after_three_workers(pool: WorkerPool, tmp_path: Path) -> None:
    counter = tmp_path / "calls"
    assert pool.call(die_twice, str(counter)) == 7
    assert pool.map(die_twice, [(str(tmp_path / "other"),)], timeout_s=30) == [7]
    found = pool.call(segfault)
    assert isinstance(found, CallFailure)


def test_a_pool_survives_the_death_of_idle_workers(pool: WorkerPool) -> None:
    for _ in range(3):
        os.kill(pool.call(os.getpid), signal.SIGKILL)  # type: ignore[arg-type]
        time.sleep(0.3)
        assert pool.call(double, 3) == 6


def test_calls_that_wait_behind_a_dead_worker_are_made_again(pool: WorkerPool) -> None:
    """They are larger than a pipe: the pool is given up while it still sends."""
    assert pool.call(double, 1) == 2
    pids = pool._pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def kill() -> None:
        time.sleep(0.5)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = pool.map(len, [(b"x" * 300_000,)] * 6, 20)
    killer.join()
    assert found == [300_000] * 6


def test_several_threads_may_end_one_pool(tmp_path: Path) -> None:
    pool = WorkerPool(1, WorkerConfig(1, 1.0, str(tmp_path / "worker.log")))
    ended: list[str] = []

    def call() -> None:
        try:
            pool.call(hang)
        except CancelledError:
            ended.append("cancelled")

    def restart() -> None:
        pool.restart()
        ended.append("restarted")

    threads = [threading.Thread(target=call)]
    threads[0].start()
    time.sleep(0.5)
    threads += [threading.Thread(target=restart), threading.Thread(target=pool.close)]
    for thread in threads[1:]:
        thread.start()
    pool.close()
    for thread in threads:
        thread.join(20)
    assert sorted(ended) == ["cancelled", "restarted"]
    with pytest.raises(CancelledError):
        pool.call(double, 1)


def test_a_stopped_worker_is_seen_and_ends_with_a_restart(pool: WorkerPool) -> None:
    pid = pool.call(os.getpid)
    assert isinstance(pid, int)
    assert pid not in pool.stopped()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    assert pool.stopped() == [pid]
    pool.restart()
    assert not _alive(pid)
    assert pool.call(double, 5) == 10
    assert pool.stopped() == []


def test_calls_of_a_scope_end_when_it_is_cancelled(pool: WorkerPool) -> None:
    pool.map(double, [(1,)] * 4, timeout_s=60)  # all workers are there
    scope = CallScope()
    threading.Timer(0.3, scope.cancel).start()
    started = time.monotonic()
    with scope, pytest.raises(CancelledError):
        pool.map(time.sleep, [(30,)] * 4, timeout_s=60)
    assert time.monotonic() - started < 5
    with scope, pytest.raises(CancelledError):
        pool.call(double, 1)
    assert pool.call(double, 2) == 4


def test_workers_die_with_their_creator(tmp_path: Path) -> None:
    """kill -9 of the driver leaves no worker behind."""
    code = (
        "import os, sys, time\n"
        "from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        "if __name__ == '__main__':\n"
        f"    pool = WorkerPool(1, WorkerConfig(1, 2, {str(tmp_path / 'log')!r}))\n"
        "    print(pool.call(os.getpid), flush=True)\n"
        "    pool.submit(time.sleep, 600)\n"
        "    time.sleep(600)\n"
    )
    script = tmp_path / "creator.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as creator:
        assert creator.stdout is not None
        worker = int(creator.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        creator.kill()
        creator.wait()
    deadline = time.monotonic() + 10
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_closed_terminal_ends_a_pool_without_complaints(tmp_path: Path) -> None:
    code = (
        "import os, signal, time; from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        "signal.signal(signal.SIGHUP, lambda *_: None)\n"
        f"with WorkerPool(1, WorkerConfig(1, 2, {str(tmp_path / 'log')!r})) as pool:\n"
        "    pool.call(int)\n"
        "    os.killpg(0, signal.SIGHUP)\n"  # to all processes, as a terminal sends it
        "    time.sleep(0.5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_limit_of_files_is_told() -> None:
    code = (
        "import resource; from tunefleet.errors import SetupError\n"
        "from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\n"
        "try:\n"
        "    WorkerPool(1, WorkerConfig(1, 2, ''))\n"
        "except SetupError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("a process may open 16 files here")


def test_a_pool_that_is_interrupted_as_it_starts_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import os, signal, threading, time\n"
        "from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # nohup ignores it
        "stop = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))\n"
        f"pool = WorkerPool(1, WorkerConfig(1, 2, {str(tmp_path / 'log')!r}))\n"
        "stop.start()\n"
        "try:\n"
        "    pool.call(time.sleep, 5)\n"
        "except KeyboardInterrupt:\n"
        "    pool.close()\n"
        "    print('stopped')\n"
    )
    # Returns when the last process that holds the streams is gone.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


@pytest.mark.parametrize("after_s", [0.03, 0.5])
def test_ctrl_c_is_not_for_the_server_of_workers(after_s: float, tmp_path: Path) -> None:
    code = (
        "import os, signal, threading, time; from multiprocessing import forkserver\n"
        "from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        "def interrupt():\n"
        "    while forkserver._forkserver._forkserver_pid is None:\n"
        "        time.sleep(0.001)\n"
        f"    time.sleep({after_s})\n"
        "    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        f"with WorkerPool(1, WorkerConfig(1, 2, {str(tmp_path / 'log')!r})) as pool:\n"
        "    print(pool.call(int))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def _plain_environment() -> dict[str, str]:
    """A thread of this process that starts workers sets PYTHONSAFEPATH for a moment."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}


@pytest.mark.parametrize("before", [None, "1"])
def test_what_lies_in_the_folder_is_run_by_no_worker(before: str | None, tmp_path: Path) -> None:
    here, script = tmp_path / "here", tmp_path / "command.py"
    here.mkdir()
    for module in ("numpy", "random", "select", "signal", "tempfile", "types", "tvm"):
        (here / f"{module}.py").write_text("raise RuntimeError('what lies here ran')")
    script.write_text(
        "import os; from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        f"with WorkerPool(1, WorkerConfig(1, 2, {str(tmp_path / 'log')!r})) as pool:\n"
        "    print(pool.call(int), os.environ.get('PYTHONSAFEPATH'))\n"
    )
    # Like a command of a package, and unlike `python -c`: this process does not look there.
    environment = _plain_environment() | ({"PYTHONSAFEPATH": before} if before else {})
    done = subprocess.run(
        [sys.executable, script], cwd=here, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (f"0 {before}\n", "")


def test_semaphores_that_cannot_be_made_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel answers where /dev/shm is mounted read-only."""

    def refused(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with WorkerPool(1, WorkerConfig(1, 4.0, str(tmp_path / "log"))) as pool:
        monkeypatch.setattr(multiprocessing.synchronize.SemLock, "__init__", refused)
        with pytest.raises(SetupError, match=r"in /dev/shm: Read-only file system; let /dev/shm"):
            pool.submit(len, [1])
        monkeypatch.undo()


def test_a_pool_that_is_dropped_as_it_starts_says_nothing(tmp_path: Path) -> None:
    code = (
        "import time; from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        f"pool = WorkerPool(2, WorkerConfig(1, 2, {str(tmp_path / 'log')!r}))\n"
        "pool.submit(int)\n"
        "pool._registry.cleanup()\n"
        "time.sleep(2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_clock_that_is_set_blames_no_call(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, later = time.time(), time.monotonic() + 0.3
    monkeypatch.setattr(time, "time", lambda: began + 3600 * (time.monotonic() > later))
    assert pool.call(sleep, 1.0, timeout_s=30) == 1.0
    ended = pool.call(sleep, 60.0, timeout_s=1)
    assert isinstance(ended, CallFailure)
    assert ended.end is CallEnd.TIMEOUT


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Names of sockets have 108 characters at most."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        yield Path(folder)


def test_a_command_that_is_killed_leaves_nothing_that_the_next_does_not_remove(
    short_folder: Path,
) -> None:
    code = (
        "import os, signal; from tunefleet.system.scratch import scratch_folder\n"
        "from tests.workers.test_pool import torch_cache\n"
        "from tunefleet.workers.pool import WorkerConfig, WorkerPool\n"
        "folder = scratch_folder('test')\n"
        "pool = WorkerPool(1, WorkerConfig(1, 8.0, folder.name + '/log'))\n"
        "print(pool.call(torch_cache), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    temporary = _plain_environment() | {"TMPDIR": str(short_folder)}
    killed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=temporary,
        check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert str(short_folder / "tunefleet-test-") in killed.stdout
    left = [path.name for path in short_folder.iterdir()]
    assert left
    assert all(name.startswith("tunefleet-") for name in left)
    code = "from tunefleet.system.scratch import scratch_folder; scratch_folder('test').cleanup()"
    subprocess.run([sys.executable, "-c", code], timeout=60, env=temporary, check=True)
    assert list(short_folder.iterdir()) == []


def torch_cache() -> str:
    return os.environ["TORCHINDUCTOR_CACHE_DIR"]
