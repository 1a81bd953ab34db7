"""Memory allocators of running processes. No I/O.

Formats: proc(5) `maps`, `environ` and `status`; pgrep(1).
"""

import re
from dataclasses import dataclass
from typing import Literal

from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, parse_each, split_blocks
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

Malloc = Literal["jemalloc", "tcmalloc", "mimalloc", "musl", "glibc", "its own"]

# A library that is loaded before the C library replaces its malloc.
_LIBRARIES: tuple[tuple[Malloc, str], ...] = (
    ("jemalloc", r"libjemalloc"),
    ("tcmalloc", r"libtcmalloc"),
    ("mimalloc", r"libmimalloc"),
    ("musl", r"ld-musl|libc\.musl"),
    ("glibc", r"libc(-[\d.]+)?\.so"),
)

_SCRIPT = load_script("allocator-processes", argument_count=1)
_HINTS = (
    Hint(
        r"Permission denied",
        "only root can read this of other users' processes: add the login's sudo rule",
    ),
)


_INNER = r"map /|VmRSS:|LD_PRELOAD=|MALLOC_[A-Z_]*="


@dataclass(frozen=True)
class Process:
    """A running process and its memory allocator."""

    pid: int
    malloc: Malloc
    memory_bytes: int
    """Resident memory in bytes."""
    settings: tuple[str, ...]
    """Environment variables that affect malloc, such as `MALLOC_ARENA_MAX=2`."""


def query_processes(name: str) -> Query[Rows[Process]]:
    """Query every process of this name. The kernel stores the first 15 characters of a name."""
    # pgrep expects a pattern.
    exact = re.sub(r"[^A-Za-z0-9_:@-]", lambda found: f"[{found[0]}]", name[:15])
    shell = Shell(
        (_SCRIPT, exact),
        root=True,
        error_pattern=r"Permission denied",
        hints=_HINTS,
    )
    return Query(shell, parse_processes)


def parse_processes(answer: str) -> Rows[Process]:
    blocks = split_blocks(answer.splitlines(), inner=_INNER)
    return parse_each(blocks, _parse_process)


def _parse_process(block: str) -> Process:
    head, *lines = block.splitlines()
    if not re.fullmatch(r"pid \d+", head):
        raise ParseError("it is no process")
    maps = [line[4:] for line in lines if line.startswith("map ")]
    memory = next((re.fullmatch(r"VmRSS:\s+(\d+) kB", line) for line in lines[:1]), None)
    if not maps or memory is None:
        raise ParseError("it has no memory map: it has just ended, or is a kernel thread")
    return Process(
        pid=int(head.removeprefix("pid ")),
        malloc=_find_malloc(maps),
        memory_bytes=int(memory[1]) * 1024,
        settings=tuple(line for line in lines[1:] if not line.startswith("map ")),
    )


def _find_malloc(maps: list[str]) -> Malloc:
    names = [path.rsplit("/", 1)[-1] for path in maps]
    for malloc, pattern in _LIBRARIES:
        if any(re.match(pattern, name) for name in names):
            return malloc
    return "its own"


_PROCESS = WordPattern(r"[A-Za-z0-9_]([A-Za-z0-9_:@-]|\[[.+]\]){0,14}")
SUDO = (SudoRule(_SCRIPT, _PROCESS, read_only=True),)
