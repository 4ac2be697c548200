"""One error tree, divided by what the caller does next.

Every message names the thing, the cause and the cure in one line. The CLI prints it, exits with
`exit_code` and shows no traceback unless asked (`--traceback`). A failed trial is never an
exception across rooms: it is data (`tunefleet.core.trial.Failure`).
"""

from __future__ import annotations

import errno
import os
import traceback
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


class DiskFullError(SetupError):
    """A disk is full: what was to be written can be written again when there is space."""


class RetryElsewhereError(TunefleetError):
    """The work itself is fine: run it again, on another worker or device."""

    exit_code = 4


class StoreBusyError(RetryElsewhereError):
    """Another process holds the store or the job: no other device helps, only waiting."""


class DeviceError(TunefleetError):
    """Quarantine the device: its measurements cannot be trusted."""

    exit_code = 5


class JobError(TunefleetError):
    """This job cannot be completed, whatever runs it."""

    exit_code = 6


class StepOrderError(InputError):
    """A step of a Session was called before the step that it needs."""


class InternalError(TunefleetError):
    """A bug of tunefleet: please report it with the text and `details`, the traceback where it
    happened, which may be another process."""

    exit_code = 70
    details: str = ""


#: What Python raises where code is wrong, whatever it works on.
_MISTAKES = (AttributeError, NameError, AssertionError, TypeError, LookupError, ZeroDivisionError)
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def is_mistake(error: BaseException) -> bool:
    """Whether an error is a bug of tunefleet: it is of a kind that code raises by mistake, and the
    last Python function that ran was one of this package, not of a library that it called."""
    if isinstance(error, TunefleetError):
        return isinstance(error, InternalError)
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = last.tb_frame.f_code.co_filename if last is not None else ""
    return isinstance(error, _MISTAKES) and where.startswith(_PACKAGE)


def raise_mistake(error: BaseException) -> None:
    """Raise InternalError if an error is a bug of tunefleet.

    Whoever takes errors of any kind as a candidate's, a file's or a compiler's fault calls it
    first: a bug of ours must not end as somebody else's failure.
    """
    if not is_mistake(error):
        return
    if isinstance(error, InternalError):
        raise error
    raise internal(error) from error


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def raise_disk_full(error: BaseException, text: str = "") -> None:
    """Raise DiskFullError if an error, or the `text` of another program, says that a disk is full.

    Whoever takes errors as a candidate's fault calls it first: a full disk is nobody's.
    """
    if isinstance(error, DiskFullError):
        raise error
    said = text or str(error)
    full = isinstance(error, OSError) and error.errno in _NO_SPACE
    if full or any(os.strerror(number) in said for number in _NO_SPACE):
        raise DiskFullError(
            f"a disk is full: {said}", cure="free space; what was committed is kept"
        ) from error


def machine_error(error: OSError) -> SetupError:
    """A limit, a permission or a stream that cannot be written to: nothing of ours."""
    file = f"{error.filename}: " if error.filename else ""
    return SetupError(f"{file}{error.strerror or error}", cure="free or correct it")


def internal(error: BaseException) -> InternalError:
    """An error that nobody foresaw, with where it happened."""
    if isinstance(error, InternalError):
        return error
    place = traceback.extract_tb(error.__traceback__)[-1]
    file = place.filename.removeprefix(_PACKAGE)
    wrapped = InternalError(f"{type(error).__name__}: {error} ({file}:{place.lineno})")
    wrapped.details = "".join(traceback.format_exception(error))
    return wrapped
