"""Landlock: the kernel refuses a thread, and all that it starts, what no rule lets them reach
(`man 7 landlock`). It asks for no privilege."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Mapping
from enum import IntFlag
from pathlib import Path

#: The same numbers on every processor.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1


class Right(IntFlag):
    """What a rule lets a process do with the files below a folder."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Right.READ_FILE | Right.READ_DIR
#: Regular files and folders, and no links that lead elsewhere when another process follows them.
WRITE = (
    READ
    | Right.WRITE_FILE
    | Right.REMOVE_DIR
    | Right.REMOVE_FILE
    | Right.MAKE_DIR
    | Right.MAKE_REG
    | Right.REFER
    | Right.TRUNCATE
)
#: What a rule may say of a file that is no folder.
_OF_FILE = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
#: The version of the interface that brought a right; all others are of the first.
_SINCE = {Right.REFER: 2, Right.TRUNCATE: 3, Right.IOCTL_DEV: 5}
#: Binding and connecting by TCP, since 4; abstract Unix sockets and signals beyond those who are
#: restricted alike, since 6.
_TCP, _TCP_SINCE = 0b11, 4
_SCOPES, _SCOPES_SINCE = 0b11, 6

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def landlock_version() -> int:
    """Of the interface that this kernel has; 0 where it has none, or is not to use it."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def restrict_files(rules: Mapping[Path, Right], version: int) -> None:
    """Let this thread and all that it starts reach what lies at or below the paths of `rules`, and
    connect to nothing. Paths that are not there are left out. Raises OSError."""
    every = _known(Right(sum(Right)), version)
    attributes = _Ruleset(every)
    size = 8
    if version >= _TCP_SINCE:
        attributes.handled_access_net, size = _TCP, 16
    if version >= _SCOPES_SINCE:
        attributes.scoped, size = _SCOPES, 24
    ruleset = _checked(
        _libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    )
    try:
        for path, rights in rules.items():
            _add(ruleset, path, _known(rights, version))
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _known(rights: Right, version: int) -> Right:
    return Right(sum(each for each in rights if _SINCE.get(each, 1) <= version))


def _add(ruleset: int, path: Path, rights: Right) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return  # there is nothing that could be reached
        raise
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILE
        rule = _PathBeneath(rights, place)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(place)


def _checked(returned: int) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return returned


def merged(*rules: Iterable[tuple[Path, Right]]) -> dict[Path, Right]:
    """One rule for each place, with symbolic links followed, and all rights that it is given."""
    places: dict[Path, Right] = {}
    for group in rules:
        for path, rights in group:
            place = path.resolve()
            places[place] = places.get(place, Right(0)) | rights
    return places
