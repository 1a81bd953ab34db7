"""Types commands at `keyturn` for tests: in a process of its own each, which begins at once.

It has loaded what most commands load, which takes a command nearly all of its time, and forks. All
else is done as `python -m bot` does it: a command loads what it alone needs, and its process ends.
"""

import gc
import importlib
import json
import os
import pkgutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

import bot
from bot.__main__ import main
from runbooks import load_catalogue

_LONGEST = 1 << 17


def serve(asking: socket.socket) -> None:
    """Do what is asked, one after the other, and answer each with its exit status."""
    for module in pkgutil.walk_packages(bot.__path__, "bot."):
        importlib.import_module(module.name)
    load_catalogue()
    # A process that ends looks through all that it may leave, and copies it by that.
    gc.collect()
    gc.freeze()
    while True:
        asked, streams, *_ = socket.recv_fds(asking, _LONGEST, 2)
        if not asked:
            return
        child = os.fork()
        if not child:
            asking.close()
            _type(streams, **json.loads(asked))
        for stream in streams:
            os.close(stream)
        asking.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _type(
    streams: Sequence[int], *, words: Sequence[str], env: Mapping[str, str], where: str
) -> NoReturn:
    """streams: where its output and its errors go."""
    os.chdir(where)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for stream, name in zip(streams, (1, 2), strict=True):
        os.dup2(stream, name)
        os.close(stream)
    # The environment may name runbooks of an installation's own.
    load_catalogue.cache_clear()
    sys.argv = ["keyturn", *words]
    main(prog_name="python -m bot")
    sys.exit()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
