"""What a run did is in a file, by levels, with the text of failures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunefleet.core.events import Event, JobEnded, Note, PhaseStarted, StageCommitted
from tunefleet.core.home import Home
from tunefleet.core.stage import BuildResult, StageKey, StageKind, StageRun
from tunefleet.core.trial import Failure, FailureKind
from tunefleet.errors import InputError, InternalError
from tunefleet.runs import run_log
from tunefleet.runs.run_log import RunLog, log_file, read_log

RUN = "a" * 32
FAILED = Failure(FailureKind.BUILD_ERROR, "error: no such register\nin f")
BUILT = StageRun(
    StageKey(RUN, "task", 3, StageKind.BUILD), BuildResult((), (("candidate", FAILED),)), 0.0, 1.5,
    resource_id="host", attempt=2,
)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    made = RunLog(Home(tmp_path).logs, lambda: RUN, lambda event: None)
    yield made
    made.close()


def lines(home: Path, level: str = "info") -> list[str]:
    """Without their times."""
    found = read_log(log_file(home, RUN[:8]), level)
    return [line.split(" ", 2)[2] if line[:2] == "20" else line for line in found]


def test_stages_are_told_with_their_keys_and_failures_with_their_texts(
    log: RunLog, tmp_path: Path
) -> None:
    log(StageCommitted(BUILT, 4, 2.0))
    assert lines(tmp_path) == [
        "INFO     build task#3 of job aaaaaaaa: 1.50 s on host, attempt 2",
        "WARNING  build task#3 of job aaaaaaaa: candidate candidat: build_error: "
        "error: no such register",
        "  in f",
    ]
    assert lines(tmp_path, "warning")[1:] == ["  in f"]


def test_every_event_is_passed_on(tmp_path: Path) -> None:
    seen: list[Event] = []
    log = RunLog(tmp_path, lambda: RUN, seen.append)
    log(PhaseStarted("import"))
    log.close()
    assert [PhaseStarted("import")] == seen


def test_a_bug_is_told_with_its_traceback(log: RunLog, tmp_path: Path) -> None:
    bug = InternalError("a bug")
    bug.details = "Traceback: here"
    log.failed(bug)
    assert lines(tmp_path, "error")[-1] == "  Traceback: here"


def test_a_long_log_is_rotated_and_read_in_its_order(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "_MOST_BYTES", 200)
    for number in range(9):
        log(Note(f"note {number} " + 60 * "x"))
    assert len(list(Home(tmp_path).logs.iterdir())) == 3
    told = [line.split()[2] for line in lines(tmp_path)]
    assert told == [str(number) for number in range(9 - len(told), 9)]


def test_a_log_is_followed_to_the_end_of_its_run(log: RunLog, tmp_path: Path) -> None:
    log(Note("first"))
    coming: list[Event] = [Note("second"), JobEnded()]
    found = read_log(log_file(tmp_path, RUN), "info", lambda: log(coming.pop(0)))
    assert [line.split()[-1] for line in found] == ["first", "second", "ended"]


def test_a_log_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    tmp_path.joinpath("logs").write_text("no folder")
    log = RunLog(Home(tmp_path).logs, lambda: RUN, lambda event: None)
    log(Note("first"))
    log.close()
    assert logging.getLogger("tunefleet").handlers == []


def test_a_run_without_a_log_is_an_input_error(log: RunLog, tmp_path: Path) -> None:
    log(Note("first"))
    with pytest.raises(InputError, match="there is no log"):
        log_file(tmp_path, "bbbbbb")
    with pytest.raises(InputError, match="too short"):
        log_file(tmp_path, "aa")
