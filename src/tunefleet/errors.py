"""One error tree, divided by what the caller does next.

Every message names the thing, the cause and the cure in one line. The CLI prints it, exits with
`exit_code` and shows no traceback unless asked (`--traceback`). A failed trial is never an
exception across rooms: it is data (`tunefleet.core.trial.Failure`).
"""

from __future__ import annotations

import errno
import os
import traceback
from traceback import walk_tb
from types import FrameType, TracebackType
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


class OptionsNeededError(InputError):
    """Say more about a network that can be read, such as the sizes of its free dimensions."""


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


class LeaseLostError(RetryElsewhereError):
    """The lease under which the work was done is over: what it made is not kept."""


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


def error_named(name: str) -> type[TunefleetError]:
    """The class of the tree with that name, as an error is kept and sent; JobError for one that
    another version has."""
    return _named(TunefleetError).get(name, JobError)


def _named(base: type[TunefleetError]) -> dict[str, type[TunefleetError]]:
    named = {base.__name__: base}
    for kind in base.__subclasses__():
        if kind.__module__ == __name__:
            named |= _named(kind)
    return named


class ForeignError(Exception):
    """A compiler, a framework or a measured program failed, in words that can leave its process.

    It is data to whoever asked for the call, as a trial that fails, and crosses no rooms.
    """


#: What may fail for reasons of others: the compiler, the frameworks, what opens their files.
LIBRARIES = frozenset(
    {
        "ai_edge_litert",
        "flatbuffers",
        "google",
        "h5py",
        "keras",
        "onnx",
        "onnxruntime",
        "safetensors",
        "tensorflow",
        "tflite",
        "torch",
        "torchvision",
        "transformers",
        "tvm",
        "tvm_ffi",
    }
)
#: What the system says of a disk, a limit, a permission or a connection, whatever was asked of it.
_OF_MACHINE = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE),
        *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
        *(errno.ENAMETOOLONG, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN),
        *(errno.ENOLCK, errno.EBUSY, errno.ETXTBSY, errno.EEXIST, errno.ENOTEMPTY, errno.EXDEV),
        *(errno.ENODEV, errno.ENXIO, errno.EPIPE, errno.ECONNREFUSED, errno.ECONNRESET),
        *(errno.ECONNABORTED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH),
        *(errno.ENETDOWN, errno.EADDRINUSE, errno.ENOSYS),
    }
)
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MARK = "_tunefleet_foreign"


class foreign:
    """Names a call of a library that leaves no frame in a traceback, as those in C: an error that
    is raised within the block is not ours, unless code of ours raised it that was called there."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(error, Exception) and not any(map(_is_ours, list(walk_tb(tb))[1:])):
            setattr(error, _MARK, True)


def is_foreign(error: BaseException) -> bool:
    """Whether a library raised an error that may fail for reasons of others (`LIBRARIES`), or a
    call that is named so (`foreign`): after the last function of this package that ran."""
    if isinstance(error, ForeignError) or getattr(error, _MARK, False):
        return True
    if type(error).__module__.partition(".")[0] in LIBRARIES:
        return True
    for frame in reversed(list(walk_tb(error.__traceback__))):
        if _is_ours(frame):
            return False
        if _library(frame[0]) in LIBRARIES:
            return True
    return False


def ran_here(error: BaseException) -> bool:
    """Whether an error passed through code of this package."""
    return any(map(_is_ours, walk_tb(error.__traceback__)))


def _is_ours(frame: tuple[FrameType, int]) -> bool:
    return frame[0].f_code.co_filename.startswith(_PACKAGE)


def _library(frame: FrameType) -> str:
    """The package that a frame's code is of. TVM adds frames that only have the name of a file:
    those of functions that it called, and of its own code in C++."""
    name = frame.f_globals.get("__name__")
    if name is None:
        path = frame.f_code.co_filename.rpartition("site-packages" + os.sep)[2]
        name = path.partition(os.sep)[0] if path.endswith(".py") else "tvm"
    return str(name).partition(".")[0]


def is_mistake(error: BaseException) -> bool:
    """Whether an error is a bug of tunefleet: it is none of the error tree, no library raised it
    that may fail for reasons of others, and it says nothing of the machine.

    Converters raise NotImplementedError for what a network asks of them and they do not know.
    """
    if isinstance(error, TunefleetError):
        return isinstance(error, InternalError)
    if isinstance(error, (MemoryError, NotImplementedError)):
        return False
    if isinstance(error, OSError) and error.errno in _OF_MACHINE:
        return False
    return not is_foreign(error)


def raise_mistake(error: BaseException) -> None:
    """Raise InternalError if an error is a bug of tunefleet, SetupError if it is the machine's.

    Whoever takes errors of any kind as a candidate's, a file's or a compiler's fault calls it
    first: neither a bug of ours nor a full disk may end as somebody else's failure.
    """
    if isinstance(error, InternalError):
        raise error
    if is_mistake(error):
        raise internal(error) from error
    if not isinstance(error, TunefleetError):
        raise_disk_full(error)
    if isinstance(error, OSError) and not is_foreign(error):
        raise machine_error(error) from error


def judged(error: Exception) -> Exception:
    """What an error is that nobody expected where a worker or a thread ends: it is judged where its
    traceback is, and travels as this. ForeignError is data, MemoryError that of a limit."""
    if isinstance(error, (TunefleetError, ForeignError)):
        return error
    if _says_full(error, str(error)):
        return disk_full(error)
    if isinstance(error, MemoryError) or (is_foreign(error) and "bad_alloc" in str(error)):
        return MemoryError(str(error))
    if is_foreign(error):
        lines = str(error).strip().splitlines()
        return ForeignError(lines[-1] if lines else type(error).__name__)
    if isinstance(error, OSError) and not is_mistake(error):
        return machine_error(error)
    return internal(error)


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def raise_disk_full(error: BaseException, text: str = "") -> None:
    """Raise DiskFullError if an error, or the `text` of another program, says that a disk is full.

    Whoever takes errors as a candidate's fault calls it first: a full disk is nobody's.
    """
    if isinstance(error, DiskFullError):
        raise error
    said = text or str(error)
    if _says_full(error, said):
        raise disk_full(said) from error


def _says_full(error: BaseException, said: str) -> bool:
    full = isinstance(error, OSError) and error.errno in _NO_SPACE
    return full or any(os.strerror(number) in said for number in _NO_SPACE)


def disk_full(said: object) -> DiskFullError:
    return DiskFullError(f"a disk is full: {said}", cure="free space; what was committed is kept")


def machine_error(error: OSError) -> SetupError:
    """A limit, a permission or a stream that cannot be written to: nothing of ours."""
    file = f"{error.filename}: " if error.filename else ""
    return SetupError(f"{file}{error.strerror or error}", cure="free or correct it")


def internal(error: BaseException) -> InternalError:
    """An error that nobody foresaw, with where it happened."""
    if isinstance(error, InternalError):
        return error
    where = ""
    if error.__traceback__ is not None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({place.filename.removeprefix(_PACKAGE)}:{place.lineno})"
    wrapped = InternalError(f"{type(error).__name__}: {error}{where}")
    wrapped.details = "".join(traceback.format_exception(error))
    return wrapped
