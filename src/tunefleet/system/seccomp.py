"""A filter of system calls (`man 2 seccomp`): no sockets, nothing on other processes, nothing of an
administrator. It sees numbers, never the paths that they point to, and asks for no privilege."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_libc = ctypes.CDLL(None, use_errno=True)

_SET_FILTER, _IS_THERE = 1, 2
#: All threads at once; and no slower branches: kernels before 5.16 would else take every filtered
#: process for one that runs strangers' code beside its own, and what is measured there is code.
_ALL_THREADS, _FAST_BRANCHES = 1, 4
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

#: Instructions of the filter: load a word, compare it, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: Where a call's number, its processor and its first argument lie; words are little-endian.
_NUMBER_AT, _PROCESSOR_AT, _FIRST_AT = 0, 4, 16

#: Flags of `clone` that make a namespace.
_NAMESPACES = 0x7E020000

#: Refused, by its number on x86-64 and on others (arm64, RISC-V); None where it does not exist.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # connections, and what makes calls that no filter sees
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    "bind": (49, 200), "listen": (50, 201),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    # the machine and its kernel
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89),
    "sethostname": (170, 161), "setdomainname": (171, 162), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "vhangup": (153, 58),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "fanotify_init": (300, 262),
    # files past their paths, files that are none, attributes
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33),
    "truncate": (76, 45), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
#: Does nothing, and says that it did: Landlock does not ask which file it is, and linkers and
#: copying libraries give up where it fails.
_WITHOUT_EFFECT: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
}  # fmt: skip
_PROGRAMS: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
}


@dataclass(frozen=True, slots=True)
class _Processor:
    """`audit` is how the kernel names it, `column` of the tables is its numbers'."""

    audit: int
    column: int
    seccomp: int
    clone: int
    limits: int
    clone3: int = 435


_PROCESSORS = {
    "x86_64": _Processor(0xC000003E, 0, seccomp=317, clone=56, limits=302),
    "aarch64": _Processor(0xC00000B7, 1, seccomp=277, clone=220, limits=261),
    "riscv64": _Processor(0xC00000F3, 1, seccomp=277, clone=220, limits=261),
}
#: Beyond it lie the numbers of x32, a second table of x86-64.
_X32 = 0x40000000

_Step = tuple[int, int, int, int]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def has_seccomp() -> bool:
    """Whether this kernel filters calls, and the numbers of this processor are known here."""
    processor = _PROCESSORS.get(platform.machine())
    if processor is None:
        return False
    action = ctypes.c_uint32(_ERROR)
    return bool(_libc.syscall(processor.seccomp, _IS_THERE, 0, ctypes.byref(action)) == 0)


def refuse_calls(*, programs: bool) -> None:
    """Filter the calls of all threads of this process, and of all that they start; without
    `programs` none can be started. Raises OSError."""
    processor = _PROCESSORS[platform.machine()]
    steps = b"".join(struct.pack("=HBBI", *step) for step in _steps(processor, programs=programs))
    filtered = _Filter(len(steps) // 8, steps)
    flags = _ALL_THREADS | _FAST_BRANCHES
    outcome = _libc.syscall(processor.seccomp, _SET_FILTER, flags, ctypes.byref(filtered))
    if outcome:  # the number of a thread that could not be filtered, or -1
        number = ctypes.get_errno() if outcome < 0 else errno.EBUSY
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _steps(processor: _Processor, *, programs: bool) -> Sequence[_Step]:
    steps: list[_Step] = [
        (_LOAD, 0, 0, _PROCESSOR_AT),
        (_EQUAL, 1, 0, processor.audit),
        (_RETURN, 0, 0, _KILL),  # the calls of another processor: 32-bit programs
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    refused = _REFUSED if programs else _REFUSED | _PROGRAMS
    for tables, number in ((refused, errno.EPERM), (_WITHOUT_EFFECT, 0)):
        for numbers in tables.values():
            call = numbers[processor.column]
            if call is not None:
                steps += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _ERROR | number)]
    return [
        *steps,
        # Its flags lie in memory, where no filter looks: libraries then use `clone`.
        (_EQUAL, 0, 1, processor.clone3),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_EQUAL, 0, 3, processor.clone),
        (_LOAD, 0, 0, _FIRST_AT),
        (_ANY_BIT, 0, 5, _NAMESPACES),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        # The limits of the caller itself (0), of no other process.
        (_EQUAL, 0, 3, processor.limits),
        (_LOAD, 0, 0, _FIRST_AT),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
