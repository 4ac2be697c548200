"""What a process can reach that reads strangers' files: set by itself, held by the kernel, for good
and for all that it starts. Landlock decides on files, seccomp on sockets and other processes;
neither needs an administrator. How much the process may take is `system.limits`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tunefleet.errors import InternalError
from tunefleet.system.landlock import READ, WRITE, Right, landlock_version, merged, restrict_files
from tunefleet.system.seccomp import has_seccomp, refuse_calls

#: What libraries and the interpreter are made of, as far as it is there.
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/nsswitch.conf", "/etc/ssl/openssl.cnf",
    # Of other processes Landlock hides all but what their list of processes shows.
    "/proc", "/sys/devices/system", "/sys/fs/cgroup",
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
)  # fmt: skip
_NULL = Path("/dev/null")
#: Starts programs, before they start anything themselves.
_LOADERS = ("ld-linux*.so.*", "ld-musl-*.so.*")
#: Where libraries keep what they download or remember: in the scratch folder, since a home folder
#: cannot be read.
_CACHES = (
    "HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "KERAS_HOME",
    "TORCH_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR",
)  # fmt: skip

_NO_NEW_PRIVILEGES = 38
#: The interface of the calls on capabilities, and the two that are kept: an administrator reads
#: and writes files of others, within the rules.
_CAPABILITIES, _KEPT_CAPABILITIES = 0x20080522, (1 << 1) | (1 << 2)

_libc = ctypes.CDLL(None, use_errno=True)
_confined = False


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a process can reach beside the interpreter, the libraries and a folder of its temporary
    files.

    `reads` are files and folders; in the folders `writes` it makes, changes and removes files and
    folders, but no links. `programs` are files and folders of programs that it may start, in the
    same sandbox; without them it can start none.
    """

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """What this kernel confines a process by: the version of Landlock's interface, 0 where there is
    none, and whether it filters system calls."""

    landlock: int
    seccomp: bool

    @property
    def is_whole(self) -> bool:
        """Whether files, connections and programs are out of reach."""
        return self.landlock > 0 and self.seccomp

    @property
    def lack(self) -> str:
        """What a confined process can reach nevertheless, in a sentence; "" where it is nothing."""
        if not self.landlock and not self.seccomp:
            return "it reads and writes the files of this user, and connects to any machine"
        if not self.landlock:
            return "it reads and writes the files of this user: this kernel has no Landlock"
        if not self.seccomp:
            return "it connects to other machines: this kernel filters no system calls"
        if self.landlock < _SIGNALS_SINCE:
            return "it can send signals to processes of this user, as before Linux 6.12"
        return ""

    def __str__(self) -> str:
        parts = [f"Landlock {self.landlock}"] * (self.landlock > 0) + ["seccomp"] * self.seccomp
        return " and ".join(parts) or "neither Landlock nor seccomp"


_SIGNALS_SINCE = 6


@lru_cache(maxsize=1)
def sandbox_support() -> SandboxSupport:
    """What this kernel offers."""
    return SandboxSupport(landlock_version(), has_seccomp())


def is_confined() -> bool:
    """Whether this process reads a stranger's file in a sandbox already."""
    return _confined


def confine(sandbox: Sandbox, scratch: Path | None = None) -> None:
    """Leave this process only what `sandbox` names, as far as the kernel can (`sandbox_support`),
    and a folder for temporary files, if it is to have one.

    Raises InternalError in a process with several threads, of which Landlock would bind one, and
    OSError where the kernel refuses what it offers.
    """
    global _confined
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise InternalError(f"a process with {threads} threads cannot be confined")
    rules, support = _rules(sandbox, scratch), sandbox_support()
    # Where no module can be read, Python takes the folder of a script for one that is broken.
    sys.path[:] = [path for path in sys.path if _is_below(Path(path), rules)]
    if scratch is not None:
        for name in _CACHES:
            os.environ[name] = str(scratch)
        # It remembers the folder that it used first, maybe in the process that this is a fork of.
        tempfile.tempdir = str(scratch)
    # Libraries that ask for the user's name look here before they read the system's table.
    os.environ.setdefault("USER", "nobody")
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    if support.landlock:
        restrict_files(rules, support.landlock)
    _drop_capabilities()
    if support.seccomp:
        refuse_calls(programs=bool(sandbox.programs))
    _confined = True


def _rules(sandbox: Sandbox, scratch: Path | None) -> dict[Path, Right]:
    writes = sandbox.writes if scratch is None else (scratch, *sandbox.writes)
    programs = [*sandbox.programs, *(_loaders() if sandbox.programs else ())]
    return merged(
        ((path, READ) for path in _libraries()),
        ((path, READ) for path in sandbox.reads),
        ((path, WRITE) for path in writes),
        ((path, READ | Right.EXECUTE) for path in programs),
        [(_NULL, READ | Right.WRITE_FILE)],
    )


def _is_below(path: Path, rules: Mapping[Path, Right]) -> bool:
    place = path.resolve()
    return any(each in rules for each in (place, *place.parents))


def _libraries() -> Iterator[Path]:
    """Where the interpreter, modules and libraries lie. A folder that all of a user's own folders
    lie in is none, wherever it is named, nor is one that a program put in front of Python's own
    library, such as the folder of a script."""
    yield from map(Path, _SYSTEM)
    yield Path(__file__).parents[1]
    own = os.path.dirname(os.__file__)
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    named += sys.path[sys.path.index(own) :] if own in sys.path else []
    for variable in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        named += os.environ.get(variable, "").split(os.pathsep)
    user = Path(os.path.expanduser("~")).resolve()
    for name in dict.fromkeys(named):
        if os.path.isabs(name) and not user.is_relative_to(Path(name).resolve()):
            yield Path(name)


def _loaders() -> Iterator[Path]:
    for folder in ("/lib", "/lib64"):
        for pattern in _LOADERS:
            yield from Path(folder).glob(pattern)


def _drop_capabilities() -> None:
    """An administrator's process keeps none that reach beyond files: with them it could raise its
    limits again."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, low and high
    _checked(_libc.capget(header, sets))
    for index in range(6):
        sets[index] &= _KEPT_CAPABILITIES if index < 3 else 0
    _checked(_libc.capset(header, sets))


def _checked(returned: int) -> None:
    if returned:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, os.strerror(number))
