"""Parsers of strangers' files in processes of their own.

Parsers are large C++ libraries. Where one crashes, hangs or takes all memory, it ends its process
and no other; what it reaches is its file and its pipe. (Networks need the compiler as well:
`tunefleet.workers.apart`.)
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO

from tunefleet.errors import InputError, InternalError, TunefleetError, internal
from tunefleet.system.limits import Limits, limit_process
from tunefleet.system.sandbox import Sandbox, confine

#: Pipes, libraries and the file itself.
_FILES = 64
#: Threads that libraries start.
_TASKS = 256
#: Beyond its pipe a parser writes its last words.
_FILE_BYTES = 1 << 20
#: Of memory and processor time: for any file, and for each byte of a large one.
_MEMORY_BYTES, _MEMORY_FACTOR = 1 << 30, 32
_CPU_S, _BYTES_PER_S = 20, 1 << 20
_STREAM_BYTES = 1 << 20
#: Address space is what is limited: no arenas that are reserved, nor stacks of many threads.
_SPARING = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
_BEGIN = "from tunefleet.system.parsing import begin; begin()"
#: A parser that has said what is wrong.
_TOLD = 2


def limits_of(size: int, library_bytes: int = 0) -> Limits:
    """What the parser of a file of so many bytes may take, and its libraries when they load."""
    return Limits(
        memory_bytes=_MEMORY_BYTES + _MEMORY_FACTOR * size + library_bytes,
        cpu_s=_CPU_S + size // _BYTES_PER_S,
        tasks=_TASKS,
        files=_FILES,
        file_bytes=_FILE_BYTES,
    )


@contextmanager
def parsed(
    module: str, arguments: Sequence[str], *, what: str, size: int, cure: str
) -> Iterator[BufferedReader]:
    """The stream that a module of ours writes, which is run as a program and calls `parse`; the
    first of its arguments is the file or folder that it reads, of `size` bytes: `what`.

    Raises InputError with what it says is wrong, or how it ended, and InternalError for its bugs:
    at the end, or where the stream breaks off.
    """
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), **_SPARING}
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BEGIN, module, str(size), *arguments],
            bufsize=_STREAM_BYTES,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            env=os.environ | own,
        )
        assert isinstance(process.stdout, BufferedReader)
        try:
            try:
                yield process.stdout
            except (OSError, ValueError):  # what Arrow raises where a stream breaks off
                if process.wait() == 0:
                    raise
            if process.wait() != 0:
                words.seek(0)
                said = words.read().decode(errors="replace")
                raise _failed(what, process.returncode, said, cure)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def begin() -> None:
    """The start of a parser's process: in a sandbox with the file of its arguments, before the
    libraries are loaded, which may start threads."""
    del sys.argv[0]
    module, _, *arguments = sys.argv
    confine(Sandbox(tuple(map(Path, arguments[:1]))))
    runpy.run_module(module, run_name="__main__")


def parse(function: Callable[[Sequence[str], IO[bytes]], None], library_bytes: int = 0) -> None:
    """Call a function with the arguments of this process and the stream it is to write to, within
    the limits of the file's size; `library_bytes`: address space of libraries that it loads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for whoever waits, and ends this process
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody wants the rest
    size, *arguments = sys.argv[1:]
    limit_process(limits_of(int(size), library_bytes))
    try:
        with open(1, "wb", buffering=_STREAM_BYTES) as stream:
            function(arguments, stream)
    except MemoryError:
        _tell({"memory": True})
    except InputError as error:
        _tell({"what": error.what, "cure": error.cure})
    except Exception as error:
        bug = internal(error)
        _tell({"bug": bug.what, "details": bug.details})


def _tell(words: dict[str, object]) -> None:
    print(f"\n{json.dumps(words)}", file=sys.stderr, flush=True)
    os._exit(_TOLD)


def _failed(what: str, code: int, said: str, cure: str) -> TunefleetError:
    lines = said.strip().splitlines() or [""]
    words = json.loads(lines[-1]) if code == _TOLD else {}
    if "bug" in words:
        bug = InternalError(words["bug"])
        bug.details = words["details"]
        return bug
    if "what" in words:
        return InputError(words["what"], cure=words["cure"])
    if "memory" in words:
        return InputError(f"{what} needs more memory than a file of its size may", cure=cure)
    if code == -signal.SIGXCPU:
        return InputError(f"{what} takes longer to read than a file of its size may", cure=cure)
    ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    last = f": {lines[-1][:200]}" if lines[-1] else ""
    return InputError(f"{what} ends its parser ({ending}){last}", cure=cure)
