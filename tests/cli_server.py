"""Runs `keyturn` commands in processes forked from a loaded one, which start at once.

It has loaded all that commands load, which takes a command nearly all of its time, and forks. All
else is done as `python -m bot` does it. One server is for all workers of a test run: each connects
to it and has a process of its own, which starts the commands and waits for their ends.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import bot
from bot.__main__ import main
from runbooks import load_catalogue

_LONGEST = 1 << 17
_CREDENTIALS = struct.Struct("3i")


def serve(listener: socket.socket, test_run: int) -> None:
    """Serve whoever connects, until the process *test_run* has ended."""
    for module in pkgutil.walk_packages(bot.__path__, "bot."):
        importlib.import_module(module.name)
    load_catalogue()
    # A process that ends looks through all that it may leave, and copies it by that.
    gc.collect()
    gc.freeze()
    # Nobody waits for the processes of clients.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    end = os.pidfd_open(test_run)
    while end not in select.select([listener, end], [], [])[0]:
        with listener.accept()[0] as client:
            if _is_ours(client) and not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _serve_client(client)
                os._exit(0)


def _is_ours(client: socket.socket) -> bool:
    """Return whether it is us who connected: every user of the machine can."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _process, user, _group = _CREDENTIALS.unpack(credentials)
    return user == os.geteuid()


def _serve_client(client: socket.socket) -> None:
    """Begin each command and send its process number; for a number, send its exit status."""
    while True:
        message, streams, *_ = socket.recv_fds(client, _LONGEST, 3)
        if not message:
            return
        request = json.loads(message)
        if isinstance(request, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])
        else:
            answer = os.fork()
            if not answer:
                client.close()
                _run_command(streams, **request)
        for stream in streams:
            os.close(stream)
        client.send(str(answer).encode())


def _run_command(
    streams: Sequence[int], *, words: Sequence[str], env: Mapping[str, str], where: str
) -> NoReturn:
    """streams: its input, where its output and where its errors go."""
    os.chdir(where)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for stream, name in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, name)
        os.close(stream)
    if os.isatty(0):
        _take_terminal()
    # They may name runbooks of an installation's own; without any, the catalogue is the same.
    if "KEYTURN_RUNBOOKS" in env or Path(".env").exists():
        load_catalogue.cache_clear()
    sys.argv = ["keyturn", *words]
    status = None

    def leave() -> None:
        # Python would take each module apart now, and for that copy all of it from the server.
        if isinstance(status, int):
            sys.stdout.flush()
            os._exit(status)

    # It is the last of all that is to be done at the end.
    atexit.register(leave)
    try:
        main(prog_name="python -m bot")
    except SystemExit as end:
        status = end.code or 0
        raise
    sys.exit()


def _take_terminal() -> None:
    """Do what a shell and Python do where a program begins in a terminal."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - as long as it runs


if __name__ == "__main__":
    # Who starts it does not wait for its end.
    if not os.fork():
        serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
        os._exit(0)
