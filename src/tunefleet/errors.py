"""One error tree, divided by what the caller does next.

Every message names the thing, the cause and the cure in one line. The CLI prints it, exits with
`exit_code` and shows no traceback unless asked (`--traceback`). A failed trial is never an
exception across rooms: it is data (`tunefleet.core.trial.Failure`).
"""

from __future__ import annotations

from typing import ClassVar


class TunefleetError(Exception):
    """Base of every error raised on purpose.

    `what` names the thing and the cause, `cure` what to do about it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, cure: str = "") -> None:
        self.what = " ".join(what.split())
        self.cure = " ".join(cure.split())
        super().__init__(f"{self.what}; {self.cure}" if self.cure else self.what)


class InputError(TunefleetError):
    """Fix your input: a file, a name, an option or a value is wrong."""

    exit_code = 2


class SetupError(TunefleetError):
    """Fix this machine: a compiler, a library or a permission is missing."""

    exit_code = 3


class RetryElsewhereError(TunefleetError):
    """The work itself is fine: run it again, on another worker or device."""

    exit_code = 4


class DeviceError(TunefleetError):
    """Quarantine the device: its measurements cannot be trusted."""

    exit_code = 5


class JobError(TunefleetError):
    """This job cannot be completed, whatever runs it."""

    exit_code = 6


class StepOrderError(InputError):
    """A step of a Session was called before the step that it needs."""


class InternalError(TunefleetError):
    """A bug of tunefleet: please report it with the text."""

    exit_code = 70
