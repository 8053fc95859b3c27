"""Becomes a program of PostgreSQL; a server, one that does not outlive the test run, however that run ends.

    python postgres_starter.py once | watched USER GROUP PROGRAM OPTION...     (ids, or two empty words: as who calls)

A program of its own, because what starts the server is full of threads and of gRPC, whose handlers around a `fork` may
crash the child before it is another program; who only starts a program needs no `fork`, as long as nothing has to be
done in between. So user and watch are seen to in here. The watch is a child that reads the standard input: a byte means
that all is well, its end that nobody is there any more to stop the server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main(kind: str, user: str, group: str, *command: str) -> None:
    if user:
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
    if kind == "watched" and os.fork() == 0:
        watch(os.getppid())
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv(command[0], command)  # noqa: S606 - a program of PostgreSQL's, by its path


def watch(server: int) -> None:
    if os.read(0, 1) == b"":
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGQUIT)


if __name__ == "__main__":
    main(*sys.argv[1:])
