"""Every system call by which a process changes the files of a folder; kill -9 before any of them, or make all from one
of them on fail as those of a full or read-only disk do.

    points = run(job, folder).points                     # what it writes, in order
    run(job, folder, Fault(7))                           # gone before the eighth
    run(job, folder, Fault(7, errno.ENOSPC))             # the disk is full from the eighth on

The job runs in a forked child under ptrace, so nothing of the product knows, and SQLite's own writes and syncs are seen
like Python's. Linux; failing calls on x86-64 only (`can_kill`, `can_fail`).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# name, and where its file is named: in a descriptor (argument 0), a path (argument N), or descriptor and path
CALLS: dict[str, dict[int, tuple[str, int]]] = {
    "x86_64": {
        1: ("write", -1),
        18: ("pwrite", -1),
        20: ("writev", -1),
        74: ("fsync", -1),
        75: ("fdatasync", -1),
        77: ("ftruncate", -1),
        285: ("fallocate", -1),
        82: ("rename", 1),
        87: ("unlink", 0),
        83: ("mkdir", 0),
        257: ("open", 1),
        263: ("unlink", 1),
        264: ("rename", 3),
        316: ("rename", 3),
    },
    "aarch64": {
        64: ("write", -1),
        68: ("pwrite", -1),
        66: ("writev", -1),
        82: ("fsync", -1),
        83: ("fdatasync", -1),
        46: ("ftruncate", -1),
        47: ("fallocate", -1),
        34: ("mkdir", 1),
        56: ("open", 1),
        35: ("unlink", 1),
        38: ("rename", 3),
        276: ("rename", 3),
    },
}
MACHINE = platform.machine()
O_CHANGES = os.O_CREAT | os.O_TRUNC

TRACEME, CONT_SYSCALL, POKEUSER, SETOPTIONS, GET_SYSCALL_INFO = 0, 24, 6, 0x4200, 0x420E
OPTIONS = 0x1 | 0x8 | 0x100000  # syscall stops are marked, threads are followed, nothing outlives the tracer
SYSCALL_STOP = signal.SIGTRAP | 0x80
WALL = 0x40000000
ORIG_RAX, RAX = 8 * 15, 8 * 10
ENTRY, EXIT = 1, 2
INFO_BYTES = 128


@dataclass(frozen=True, slots=True)
class Fault:
    """At which write it begins. code: an errno that this and all later ones end with; None: kill -9 before it."""

    at: int
    code: int | None = None


@dataclass
class Traced:
    """points: each write, `name file`. killed: the fault was reached. status: the exit status (negative: a signal)."""

    points: list[str] = field(default_factory=list)
    killed: bool = False
    status: int = 0


def can_kill() -> bool:
    return sys.platform == "linux" and MACHINE in CALLS


def can_fail() -> bool:
    return sys.platform == "linux" and MACHINE == "x86_64"


def run(job: Callable[[], object], folder: Path, fault: Fault | None = None) -> Traced:
    """`job` in a child of its own. A job that raises ends with status 1 and its traceback on stderr."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _ptrace(TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            job()
            status = 0
        except BaseException:  # noqa: BLE001 - a forked child says what went wrong and must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.waitpid(pid, 0)
    _ptrace(SETOPTIONS, pid, 0, OPTIONS)
    return _Tracer(pid, os.fsencode(str(folder.resolve())), fault).trace()


class _Tracer:
    def __init__(self, pid: int, folder: bytes, fault: Fault | None) -> None:
        self.pid = pid
        self.folder = folder
        self.fault = fault
        self.traced = Traced()
        self._failing: set[int] = set()

    def trace(self) -> Traced:
        self._go_on(self.pid, 0)
        while True:
            thread, status = os.waitpid(-1, WALL)
            if os.WIFSTOPPED(status):
                self._stopped(thread, status)
            elif thread == self.pid:
                self.traced.status = os.waitstatus_to_exitcode(status)
                return self.traced

    def _stopped(self, thread: int, status: int) -> None:
        stop = os.WSTOPSIG(status)
        if stop == SYSCALL_STOP:
            self._syscall(thread)
            self._go_on(thread, 0)
        else:  # a new thread's first stop, and ptrace's own events, are not the job's
            self._go_on(thread, 0 if stop in (signal.SIGSTOP, signal.SIGTRAP) else stop)

    def _go_on(self, thread: int, number: int) -> None:
        with suppress(ProcessLookupError):  # it was killed meanwhile
            _ptrace(CONT_SYSCALL, thread, 0, number)

    def _syscall(self, thread: int) -> None:
        buffer = ctypes.create_string_buffer(INFO_BYTES)
        with suppress(ProcessLookupError):
            _ptrace(GET_SYSCALL_INFO, thread, INFO_BYTES, ctypes.addressof(buffer))
            if buffer.raw[0] == ENTRY:
                number, *arguments = struct.unpack_from("<7Q", buffer.raw, 24)
                self._entry(thread, number, arguments)
            elif buffer.raw[0] == EXIT and thread in self._failing:
                self._failing.discard(thread)
                assert self.fault is not None
                assert self.fault.code is not None
                _ptrace(POKEUSER, thread, RAX, -self.fault.code)

    def _entry(self, thread: int, number: int, arguments: list[int]) -> None:
        name, where = CALLS[MACHINE].get(number, ("", 0))
        if not name or self._is_over:
            return
        if name == "open" and not arguments[2] & O_CHANGES:
            return
        path = self._path(thread, where, arguments)
        if not path.startswith(self.folder):
            return
        if name == "open" and os.path.exists(path) and not arguments[2] & os.O_TRUNC:
            return  # nothing changes
        index = len(self.traced.points)
        self.traced.points.append(f"{name} {os.path.basename(path).decode()}")
        if self.fault is not None and index >= self.fault.at:
            self.traced.killed = True
            self._begin(thread, name, self.fault)

    @property
    def _is_over(self) -> bool:
        """Was it killed? What other threads were about to do counts no more."""
        return self.traced.killed and self.fault is not None and self.fault.code is None

    def _begin(self, thread: int, name: str, fault: Fault) -> None:
        if fault.code is None:
            os.kill(self.pid, signal.SIGKILL)
        elif name != "unlink" or fault.code != errno.ENOSPC:  # a full disk lets go of files
            self._failing.add(thread)
            _ptrace(POKEUSER, thread, ORIG_RAX, -1)

    def _path(self, thread: int, where: int, arguments: list[int]) -> bytes:
        if where < 0:
            with suppress(OSError):
                return os.readlink(f"/proc/{thread}/fd/{arguments[0]}".encode())
            return b""
        path = _string(thread, arguments[where])
        return path if path.startswith(b"/") else os.readlink(f"/proc/{thread}/cwd".encode()) + b"/" + path


def _string(pid: int, address: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(4096).split(b"\0", 1)[0]


@functools.cache
def _library() -> Any:
    """The C library, once: it is asked several times for each of the job's system calls."""
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.restype = ctypes.c_long
    library.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return library


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> Any:
    ctypes.set_errno(0)
    answer = _library().ptrace(request, pid, address & (2**64 - 1), data & (2**64 - 1))
    if answer == -1 and (code := ctypes.get_errno()):
        raise OSError(code, os.strerror(code))
    return answer
