from __future__ import annotations

import errno
import io
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer

from tunefleet import errors
from tunefleet.cli.outcome import Invocation, Stopped, guard
from tunefleet.core.allocation import next_lane

from .conftest import FakeTuning, Invoke


def ended(error: BaseException, *, traceback: bool = False) -> tuple[int, str]:
    def call(invocation: Invocation) -> object:
        invocation.traceback = traceback
        raise error

    err = io.StringIO()
    return guard(call, err), err.getvalue()


@pytest.mark.parametrize(
    ("code", "line", "error"),
    [
        (1, "error: a", errors.TunefleetError("a")),
        (2, "error: no file x; give one", errors.InputError("no file x", cure="give one")),
        (2, "error: a; b", errors.StepOrderError("a", cure="b")),
        (3, "error: a; b", errors.SetupError("a", cure="b")),
        (4, "error: a; b", errors.RetryElsewhereError("a", cure="b")),
        (5, "error: a; b", errors.DeviceError("a", cure="b")),
        (6, "error: a; b", errors.JobError("a", cure="b")),
        (70, "internal error: a (report it with {bug})", errors.InternalError("a")),
        (70, "internal error: ValueError: a b (report it with {bug})", ValueError("a\nb")),
        (70, "internal error: KeyError: no text (report it with {bug})", KeyError()),
        (3, "error: not enough memory: 9 TiB; free some, or ask for less", MemoryError("9 TiB")),
        (130, "stopped: 3 trials are kept", Stopped("stopped: 3 trials are kept")),
        (130, "stopped", KeyboardInterrupt()),
        (130, "stopped", typer.Abort()),
        (2, "error: bad; see `tunefleet --help`", typer.BadParameter("bad")),
    ],
)
def test_an_error_is_one_line_and_a_code(
    code: int, line: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEFLEET_HOME", str(tmp_path))
    if isinstance(error, typer.BadParameter):
        assert ended(error)[0] == code
        assert ended(error)[1].endswith("bad; see `tunefleet --help`\n")
    else:
        found = ended(error)
        bug = next(iter(tmp_path.rglob("bug-*.txt")), "")
        assert found == (code, line.format(bug=bug) + "\n")
        assert bool(bug) == (code == 70)


def test_a_bug_is_reported_below_the_home_of_the_command(
    invoke: Invoke, tuning: FakeTuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEFLEET_HOME", str(tmp_path / "another"))
    tuning.raises = errors.InternalError("a")
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet", "--home", str(tmp_path / "home"))
    (bug,) = tmp_path.rglob("bug-*.txt")
    assert tmp_path / "home" / "bugs" == bug.parent
    assert ended.err.endswith(f"internal error: a (report it with {bug})\n")


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("--home comes after the command, as in `tunefleet COMMAND --home ...`", "--home x tune"),
        ("--trials comes after the command, as in `tunefleet COMMAND --trials ...`", "--trials=3"),
        (
            "--home comes after the command, as in `tunefleet store COMMAND --home ...`",
            "store --home x check",
        ),
        ("no such option: --bogus; see `tunefleet --help`", "--bogus tune"),
        ("option '--minutes' requires an argument; see `tunefleet --help`", "tune --minutes"),
    ],
)
def test_an_option_before_its_command_is_told_to_come_after(
    invoke: Invoke, line: str, arguments: str
) -> None:
    ended = invoke(*arguments.split())
    assert (2, f"error: {line}\n") == (ended.code, ended.err)


@pytest.mark.slow
def test_every_error_class_has_its_own_code() -> None:
    def below(kind: type[errors.TunefleetError]) -> list[type[errors.TunefleetError]]:
        return [kind, *(k for child in kind.__subclasses__() for k in below(child))]

    for kind in below(errors.TunefleetError):
        assert ended(kind("a"))[0] == kind.exit_code


def test_a_traceback_is_shown_when_asked_for() -> None:
    code, text = ended(ValueError("a"), traceback=True)
    assert code == 70
    assert "Traceback" in text
    assert "internal error" in text


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in ended(errors.InputError("a\x1b[2Jb\rc"))[1]


def test_a_bug_that_ends_a_thread_ends_the_command() -> None:
    def call(invocation: Invocation) -> None:
        threading.Thread(target=next_lane, args=(["no lane"],)).start()
        time.sleep(10)

    started, err = time.monotonic(), io.StringIO()
    assert guard(call, err) == errors.InternalError.exit_code
    assert err.getvalue().startswith("internal error: AttributeError")
    assert time.monotonic() - started < 5


def test_success_is_zero_and_silent() -> None:
    err = io.StringIO()
    assert guard(lambda invocation: None, err) == 0
    assert err.getvalue() == ""


def test_ctrl_c_while_tuning_tells_what_is_kept(invoke: Invoke, tuning: FakeTuning) -> None:
    tuning.raises = KeyboardInterrupt()
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet")
    assert ended.code == 130
    assert ended.err.endswith("stopped: 96 trials are kept; the same command continues\n")
    assert ended.out == ""


@pytest.mark.parametrize("where", ["--traceback", ""])
def test_tune_shows_a_traceback_only_when_asked(
    invoke: Invoke, tuning: FakeTuning, where: str
) -> None:
    tuning.raises = RuntimeError("boom")
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet", *filter(None, [where]))
    assert ended.code == 70
    assert bool(where) == ("Traceback" in ended.err)


def test_ctrl_c_elsewhere_is_130(
    invoke: Invoke, modules: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tunefleet.cli.inspect.describe_networks", interrupted)
    ended = invoke("networks")
    assert (ended.code, ended.err) == (130, "stopped\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("costmodel list", "error: this user has no home folder; name one: --home DIR, or "),
        ("networks", "internal error: ValueError: a bug ("),
    ],
)
def test_a_user_without_a_home_folder_is_told(command: str, told: str) -> None:
    code = (
        "import pathlib, sys; from tunefleet.cli import app, inspect\n"
        "def no_home(path): raise RuntimeError('Could not determine home directory.')\n"
        "def bug(*args): raise ValueError('a bug')\n"
        "pathlib.Path.expanduser = no_home; inspect.describe_networks = bug\n"
        f"sys.exit(app.run({command.split()!r}))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TUNEFLEET_HOME"}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert ended.stderr.startswith(told)
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_ctrl_c_while_the_command_is_loaded_is_130() -> None:
    code = (
        "import os, signal, sys; from tunefleet.cli import main; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # nohup ignores it
        "sys.addaudithook(lambda event, args: event == 'import' and args[0] == 'typer' "
        "and os.kill(os.getpid(), signal.SIGINT)); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


@pytest.mark.slow
def test_help_loads_no_compiler_and_no_framework() -> None:
    code = (
        "import sys; from tunefleet.cli.app import run; assert run(['--help']) == 0; "
        "heavy = {'tvm', 'torch', 'xgboost', 'sqlalchemy', 'numpy', 'onnx'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tune" in done.stdout


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -c 'from tunefleet.cli import main; main()' networks | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_command_that_is_told_to_end_cleans_up(number: signal.Signals, code: int) -> None:
    cleaned = []

    def call(invocation: Invocation) -> object:
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            cleaned.append(True)
        return 0

    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP
    try:
        assert guard(call, io.StringIO()) == code
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert cleaned


def test_the_signal_counts_where_typer_makes_a_code_of_ctrl_c() -> None:
    def call(invocation: Invocation) -> object:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except KeyboardInterrupt:
            return 130
        return 0

    err = io.StringIO()
    assert guard(call, err) == 143
    assert err.getvalue() == "stopped\n"


def test_a_full_disk_is_not_our_bug() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/data/x")
    code, line = ended(error)
    assert (code, line) == (3, "error: /data/x: No space left on device; free or correct it\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirect", "code"),
    [(">&-", 0), (">/dev/full", 3), ("2>&-", 0), ("2>/dev/full", 0), ("| true", 0)],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_ends_no_command(
    redirect: str, code: int, unbuffered: str
) -> None:
    program = "import sys; from tunefleet.cli import main; sys.argv[1:] = ['networks']; main()"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} {redirect}"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    told = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment)
    assert told.returncode == code
    assert "internal error" not in told.stderr
    assert "Exception ignored" not in told.stderr


@pytest.mark.slow
def test_a_reader_that_is_gone_is_told_by_the_code() -> None:
    program = "import sys; from tunefleet.cli import main; sys.argv[1:] = ['networks']; main()"
    reader, writer = os.pipe()
    os.close(reader)
    told = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert (told.returncode, told.stderr) == (141, "")


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_what_it_can_show() -> None:
    program = "import sys; from tunefleet.cli import main; sys.argv[1:] = ['networks']; main()"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert told.returncode == 0
    assert told.stdout.isascii()
