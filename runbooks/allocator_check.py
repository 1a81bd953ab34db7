from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from connectors import allocator
from connectors.allocator import Process
from connectors.amounts import format_size
from connectors.command import QueryRunner
from connectors.errors import CommandError
from runbooks import Check, Host, Report, Table

# How many process ids of a group are shown.
_MOST_PIDS = 5


class AllocatorCheck(
    Check[tuple[Process, ...]],
    words="allocator check",
    also_called=("memory leak",),
    example="db1 mysqld",
    columns=("processes", "pids", "malloc", "memory of each", "settings"),
):
    """Check which malloc the processes of a program use, such as jemalloc or glibc's."""

    host: Host
    process: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,63}$",
            description="The name of the program, as `ps -e` shows it, such as mysqld",
        ),
    ]

    def read(self, run_query: QueryRunner) -> tuple[Process, ...]:
        found = run_query(self.host, allocator.query_processes(self.process))
        if not found:
            raise CommandError(f"{self.host} has no process with the name {self.process}")
        return found

    def report(self, processes: tuple[Process, ...]) -> Report:
        counted = Counter(process.malloc for process in processes)
        used = ", ".join(f"{name} in {count}" for name, count in counted.most_common())
        groups = _group_alike(processes)
        return Report.from_findings(
            f"{self.process} on {self.host} uses {used} of {len(processes)} processes",
            _list_findings(groups),
            table=Table(self.columns, [_format_row(group) for group in groups]),
        )


def _group_alike(processes: Sequence[Process]) -> Sequence[Sequence[Process]]:
    """Return the processes with the same allocator and settings together."""
    groups: dict[tuple[str, tuple[str, ...]], list[Process]] = {}
    for process in processes:
        groups.setdefault((process.malloc, process.settings), []).append(process)
    return [*groups.values()]


def _list_findings(groups: Sequence[Sequence[Process]]) -> Iterator[str]:
    if len({group[0].malloc for group in groups}) > 1:
        yield (
            "the processes use different allocators: some were started before a change, or with "
            "another environment"
        )
    for group in groups:
        settings = group[0].settings
        preload = " ".join(word for word in settings if word.startswith("LD_PRELOAD="))
        for name in ("jemalloc", "tcmalloc", "mimalloc"):
            if name in preload and group[0].malloc != name:
                yield (
                    f"{_format_who(group)} not use {name} although {preload} is set: check that "
                    "the library exists and that the program can read it"
                )


def _format_who(group: Sequence[Process]) -> str:
    if len(group) == 1:
        return f"process {group[0].pid} does"
    return f"{len(group)} processes ({_format_pids(group)}) do"


def _format_pids(group: Sequence[Process]) -> str:
    shown = " ".join(str(process.pid) for process in group[:_MOST_PIDS])
    more = len(group) - _MOST_PIDS
    return f"{shown} and {more} more" if more > 0 else shown


def _format_row(group: Sequence[Process]) -> tuple[str, ...]:
    sizes = [process.memory_bytes for process in group]
    low, high = format_size(min(sizes)), format_size(max(sizes))
    return (
        str(len(group)),
        _format_pids(group),
        group[0].malloc,
        low if low == high else f"{low} to {high}",
        " ".join(group[0].settings) or "-",
    )
