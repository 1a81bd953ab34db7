from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from connectors import allocator
from connectors.allocator import Process
from connectors.amounts import format_size
from connectors.command import QueryRunner
from connectors.errors import CommandError
from runbooks import Check, Host, Report, Table


class AllocatorCheck(
    Check[tuple[Process, ...]],
    words="allocator check",
    example="db1 mysqld",
    columns=("process", "malloc", "memory", "settings"),
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
        return Report.from_findings(
            f"{self.process} on {self.host} uses {used} of {len(processes)} processes",
            _list_findings(processes),
            table=Table(
                self.columns,
                [
                    (
                        str(process.pid),
                        process.malloc,
                        format_size(process.memory_bytes),
                        " ".join(process.settings) or "-",
                    )
                    for process in processes
                ],
            ),
        )


def _list_findings(processes: tuple[Process, ...]) -> Iterator[str]:
    if len({process.malloc for process in processes}) > 1:
        yield (
            "the processes use different allocators: some were started before a change, or with "
            "another environment"
        )
    for process in processes:
        preload = " ".join(word for word in process.settings if word.startswith("LD_PRELOAD="))
        for name in ("jemalloc", "tcmalloc", "mimalloc"):
            if name in preload and process.malloc != name:
                yield (
                    f"process {process.pid} does not use {name} although it has {preload}: check "
                    "that the library exists and that the process can read it"
                )
