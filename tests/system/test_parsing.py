"""Parsers that crash, hang, take all memory or have bugs, in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunefleet.errors import InputError, InternalError, TunefleetError
from tunefleet.system.parsing import parsed

_PARSER = """
import ctypes, os, signal, time
from tunefleet.errors import InputError
from tunefleet.system.parsing import parse

def read(arguments, stream):
    stream.write(b"half of it")
    stream.flush()
    {does}
    stream.write(b" and the rest")

parse(read)
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def read(does, size=0):
        (tmp_path / "a_parser.py").write_text(_PARSER.format(does=does))
        with parsed("a_parser", [], what="the file", size=size, cure="another file") as stream:
            return stream.read()

    return read


def test_what_a_parser_writes_is_read(read):
    assert read("pass") == b"half of it and the rest"


@pytest.mark.parametrize(
    ("does", "kind", "words"),
    [
        ("raise InputError('it is blue', cure='paint it')", InputError, "it is blue; paint it"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", InputError, r"ends its parser \(SIGSEGV\)"),
        ("ctypes.string_at(0)", InputError, r"the file ends its parser \(SIGSEGV\)"),
        ("bytearray(3 << 30)", InputError, "needs more memory"),
        ("os._exit(3)", InputError, "exit code 3"),
        ("[].nothing", InternalError, "has no attribute"),
    ],
)
def test_how_a_parser_failed_is_told(read, does: str, kind: type[TunefleetError], words: str):
    with pytest.raises(kind, match=words):
        read(does)


@pytest.mark.slow
def test_a_large_file_may_take_more(read):
    assert read("bytearray(3 << 30)", size=1 << 30)


@pytest.mark.slow
def test_a_parser_that_hangs_is_ended(read):
    sooner = "from tunefleet.system.limits import *; limit_process(Limits(cpu_s=1))"
    with pytest.raises(InputError, match="the file takes longer to read"):
        read(f"exec({sooner!r})\n    while True: pass")


def test_a_parser_ends_with_whoever_reads(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    does = "stream.write(b' %d\\n' % os.getpid())\n    stream.flush()\n    time.sleep(600)"
    pids: list[int] = []
    (tmp_path / "a_parser.py").write_text(_PARSER.format(does=does))

    def read_until_it_sleeps():
        with parsed("a_parser", [], what="", size=0, cure="") as stream:
            pids.append(int(stream.readline().split()[-1]))
            raise KeyError

    with pytest.raises(KeyError):
        read_until_it_sleeps()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


_LIMITED = """
import resource, threading
from tunefleet.system.limits import NO_LIMITS, Limits, limit_process
limit_process({limits})
{does}
"""


def test_what_lies_in_the_folder_is_run_by_no_parser(read, tmp_path_factory, monkeypatch):
    here = tmp_path_factory.mktemp("here")
    for module in ("ctypes", "random", "resource", "signal", "types"):
        (here / f"{module}.py").write_text("raise RuntimeError('what lies here ran')")
    monkeypatch.chdir(here)
    assert read("pass") == b"half of it and the rest"


@pytest.mark.parametrize(
    ("limits", "does", "said"),
    [
        ("Limits(memory_bytes=1 << 28)", "bytearray(1 << 29)", "MemoryError"),
        ("Limits(files=16)", "[open('/dev/null') for _ in range(20)]", "Too many open files"),
        ("Limits(file_bytes=1000)", "open('out', 'wb').write(bytes(20_000))", "File too large"),
        ("Limits(cpu_s=10**9)", "print(1 / 0)", "ZeroDivisionError"),
        ("NO_LIMITS", "bytearray(1 << 29); 1 / 0", "ZeroDivisionError"),
        ("NO_LIMITS", "1 / resource.getrlimit(resource.RLIMIT_CORE)[1]", "ZeroDivisionError"),
    ],
)
def test_limits_hold(tmp_path, limits: str, does: str, said: str):
    assert said in _ran(limits, does, tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="another user's processes are counted")
def test_tasks_are_limited_but_for_the_superuser(tmp_path):
    does = "import os; os.setuid(65534); limit_process(Limits(tasks=2))"
    start = "[threading.Thread(target=threading.Event().wait, daemon=True).start() for _ in range"
    assert "can't start new thread" in _ran("NO_LIMITS", f"{does}; {start}(3)]", tmp_path)
    assert _ran("NO_LIMITS", f"{does}; {start}(2)]", tmp_path) == ""


def _ran(limits: str, does: str, folder: Path) -> str:
    program = _LIMITED.format(limits=limits, does=does)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr
