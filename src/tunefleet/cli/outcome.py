"""What a command ends with: the one place where an exception becomes a line and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import typer

from tunefleet.cli.options import HOME_VARIABLE
from tunefleet.core.printing import printable, quoted
from tunefleet.errors import (
    InternalError,
    SetupError,
    TunefleetError,
    is_mistake,
    machine_error,
    ran_here,
)
from tunefleet.system.interrupts import interrupting

INTERRUPTED = 130
BROKEN_PIPE = 141

#: What typer raises for a wrong command line. Its public name differs between versions of typer
#: (click's own class, then a copy of it), its place among the bases of BadParameter does not.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


class Stopped(Exception):
    """The user pressed Ctrl-C; the text says what is kept."""


@dataclass(slots=True)
class Invocation:
    """What one call of the command line carries besides its options."""

    traceback: bool = False
    home: Path | None = None


def guard(call: Callable[[Invocation], object], err: TextIO | None = None) -> int:
    """Run a command and return its exit code; errors end as one line on `err` (stderr)."""
    invocation = Invocation()
    err = err if err is not None else sys.stderr
    with interrupting() as ended, _threads() as lost:
        try:
            code = call(invocation)
            if lost:
                raise lost[0]
            if code == INTERRUPTED:  # newer versions of typer swallow Ctrl-C and return this
                print("stopped", file=err)
        except BaseException as error:
            code = _explained(lost[0] if lost else error, invocation, err)
        if code == INTERRUPTED and ended:
            return 128 + ended[0]
    return code if isinstance(code, int) else 0


@contextlib.contextmanager
def _threads() -> Iterator[list[BaseException]]:
    """A bug that ends a thread ends the command, as Ctrl-C would; the list gets its error."""
    lost: list[BaseException] = []
    before, main = threading.excepthook, threading.main_thread().ident
    assert main is not None

    def ended(thread: threading.ExceptHookArgs) -> None:
        error = thread.exc_value
        if error is None or not (ran_here(error) and is_mistake(error)):
            before(thread)
        elif not lost:
            lost.append(error)
            signal.pthread_kill(main, signal.SIGINT)

    threading.excepthook = ended
    try:
        yield lost
    finally:
        threading.excepthook = before


def _explained(error: BaseException, invocation: Invocation, err: TextIO) -> int:
    if isinstance(error, SystemExit):
        if not isinstance(error.__context__, BrokenPipeError):
            return error.code if isinstance(error.code, int) else 1
        error = error.__context__  # rich makes a SystemExit of a reader that is gone
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    line, code = _line_and_code(error, invocation.home)
    if invocation.traceback and not isinstance(error, USAGE_ERROR):
        traceback.print_exception(error, file=err)
    _forget(error)
    print(one_line(line), file=err)
    return code


def _forget(error: BaseException | None) -> None:
    """Let go of what the frames of an error hold: libraries may complain as it goes, and what is
    said last is the error."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    gc.collect()


def _line_and_code(error: BaseException, home: Path | None) -> tuple[str, int]:
    if isinstance(error, Stopped):
        return str(error), INTERRUPTED
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return "stopped", INTERRUPTED
    if isinstance(error, USAGE_ERROR):
        return f"error: {_usage_text(error)}", int(getattr(error, "exit_code", 2))
    if isinstance(error, TunefleetError) and not isinstance(error, InternalError):
        return f"error: {error}", error.exit_code
    if isinstance(error, OSError) and not is_mistake(error):
        _silence_unwritten()
        return f"error: {machine_error(error)}", SetupError.exit_code
    if isinstance(error, MemoryError):
        lacking = SetupError(f"not enough memory: {error}", cure="free some, or ask for less")
        return f"error: {lacking}", SetupError.exit_code
    text = str(error) or "no text"
    name = "" if isinstance(error, InternalError) else f"{type(error).__name__}: "
    place = _written(error, home)
    how = f"report it with {place}" if place else "run with --traceback for details"
    return f"internal error: {name}{text} ({how})", InternalError.exit_code


def _written(error: BaseException, given: Path | None) -> Path | None:
    """The file with what a report of a bug needs, below the home that the command was `given`, or
    the usual one, or among temporary files; None where none can be written."""
    from tunefleet.artifacts.runtime import installed_versions
    from tunefleet.core.home import Home, default_home

    details = getattr(error, "details", "") or "".join(traceback.format_exception(error))
    command = " ".join(quoted(word) for word in sys.argv)
    versions = ", ".join(f"{k} {v}" for k, v in installed_versions().items() if v)
    about = f"{command}\n{platform.platform()}, Python {sys.version}\n{versions}"
    text = printable(f"{about}\n\n{details}")  # which somebody looks at in a terminal
    name = f"bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    folders = [Path(tempfile.gettempdir())]
    with contextlib.suppress(SetupError):
        home = Home(given or Path(os.environ.get(HOME_VARIABLE) or default_home()))
        folders.insert(0, home.bugs)
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            return folder / name
    return None


def _usage_text(error: Exception) -> str:
    """`invalid value for '--trials': ...; see tunefleet tune --help`."""
    formatter = getattr(error, "format_message", None)
    text = str(formatter() if callable(formatter) else error).strip().rstrip(".")
    context: Any = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "tunefleet")
    option = getattr(error, "option_name", None)
    # An option without its value has no context.
    if option is not None and context is not None and _is_below(context.command, option):
        return f"{option} comes after the command, as in `{path} COMMAND {option} ...`"
    return f"{text[:1].lower()}{text[1:]}; see `{path} --help`"


def _is_below(command: Any, option: str) -> bool:
    """Whether an option is one of the commands of a group, or of groups in it."""
    return any(
        any(option in parameter.opts for parameter in inner.params) or _is_below(inner, option)
        for inner in getattr(command, "commands", {}).values()
    )


def one_line(text: str) -> str:
    """`text` on one line, free of what would steer a terminal."""
    return printable(" ".join(text.split()))


def _silence_unwritten() -> None:
    """What cannot be written now could not either when the interpreter ends, which would tell it by
    a traceback and an exit code of its own."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _silence_stdout()


def _silence_stdout() -> None:
    """Nobody takes it: let the interpreter's last flush go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
