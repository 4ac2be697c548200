"""What comes back from a worker that read a stranger's file: data, whatever became of the worker.

Workers answer by pickle, which calls what it names. Where a fault of a parser gave a file the
worker, it must not get the process that waits as well: here only values of this package are made,
its errors, and what pebble wraps them in.
"""

from __future__ import annotations

import builtins
import errno
import importlib
import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, ClassVar

from pebble.common.types import RemoteException, Result, ResultStatus
from pebble.pool.process import Acknowledgement, TaskProblem, TaskResult

from tunefleet.errors import ForeignError, TunefleetError

#: Of one answer: programs of tasks as text are its most.
MOST_BYTES = 1 << 30

#: Where our values are defined; beyond these, in modules that are loaded already.
_OURS = ("tunefleet.core.", "tunefleet.compiler.", "tunefleet.artifacts.")
_ERRORS = (TunefleetError, ForeignError)


def _raised(error: object, traceback: object) -> object:
    """As pebble does, for errors alone."""
    if not isinstance(error, Exception) or not isinstance(traceback, str):
        raise pickle.UnpicklingError("an error that is none")
    return RemoteException.rebuild_exception(error, traceback)


def _member(kind: object, name: object) -> object:
    """Python before 3.11.4 pickles members of enumerations as calls of `getattr`."""
    if isinstance(kind, type) and issubclass(kind, Enum) and name in kind.__members__:
        return kind.__members__[str(name)]
    return _refused("an attribute")


_NAMED: dict[tuple[str, str], Callable[..., Any]] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (Acknowledgement, TaskProblem, TaskResult, Result, ResultStatus)
}
_NAMED[RemoteException.__module__, "RemoteException.rebuild_exception"] = _raised
_NAMED["builtins", "getattr"] = _member
for _name in ("MemoryError", "set", "frozenset", "complex", "bytearray"):
    _NAMED["builtins", _name] = getattr(builtins, _name)
for _module in ("pathlib", "pathlib._local"):
    for _name in ("PosixPath", "PurePosixPath"):
        _NAMED[_module, _name] = getattr(importlib.import_module("pathlib"), _name)


def _refused(name: str) -> Any:
    raise pickle.UnpicklingError(f"a worker sent {name}")


#: In Python: the one in C lets nobody look at what attributes are set on.
_Python: Any = pickle._Unpickler


class _Unpickler(_Python):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Any]] = dict(_Python.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        known = _NAMED.get((module, name))
        if known is not None:
            return known
        if module.startswith("tunefleet.") and name.isidentifier():
            loads = module in sys.modules or module.startswith(_OURS)
            found = getattr(importlib.import_module(module), name, None) if loads else None
            if isinstance(found, type) and found.__module__ == module and _is_value(found):
                return found
        return _refused(f"{module}.{name}")

    def load_build(self) -> None:
        if isinstance(self.stack[-2], type) or callable(self.stack[-2]):
            _refused("attributes of a class")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


def _is_value(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, (Enum, *_ERRORS))


def received(content: bytes) -> Any:
    """A worker's answer. Raises OSError for what is none, as for a pipe that broke."""
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:
        raise OSError(errno.EBADMSG, f"a worker sent what is no answer: {error}") from error
