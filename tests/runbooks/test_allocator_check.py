from dataclasses import replace

import pytest
from pydantic import ValidationError

from connectors import allocator
from connectors.allocator import Process
from connectors.errors import CommandError
from runbooks.allocator_check import AllocatorCheck
from tests.connectors.test_allocator import BOTH
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.scripted_fleet import ScriptedFleet

CHECK = AllocatorCheck.model_validate({"host": "db1", "process": "mysqld"})
JEMALLOC = Process(7, "jemalloc", 2**30, ("LD_PRELOAD=/usr/lib/libjemalloc.so.2",))


def test_processes_with_the_same_allocator_are_healthy():
    report = CHECK.report((JEMALLOC, replace(JEMALLOC, pid=8)))
    assert report.healthy
    assert report.summary == ("mysqld on db1 uses jemalloc in 2 of 2 processes")
    assert report.table is not None
    assert report.table.rows == [("2", "7 8", "jemalloc", "1 GiB", JEMALLOC.settings[0])]


def test_processes_that_are_alike_share_a_row_and_a_finding():
    workers = [replace(JEMALLOC, malloc="glibc", pid=n, memory_bytes=n * 2**20) for n in range(36)]
    report = CHECK.report((JEMALLOC, *workers))
    assert report.table is not None
    assert [row[:4] for row in report.table.rows] == [
        ("1", "7", "jemalloc", "1 GiB"),
        ("36", "0 1 2 3 4 and 31 more", "glibc", "0 B to 35 MiB"),
    ]
    assert len(report.findings) == 2
    assert report.findings[1].startswith(
        "36 processes (0 1 2 3 4 and 31 more) do not use jemalloc"
    )


def test_processes_with_different_allocators_are_a_finding():
    fleet = ScriptedFleet({("db1", allocator.query_processes("mysqld").command): BOTH})
    report = CHECK.report(CHECK.read(fleet.run_query))
    assert not report.healthy
    assert "the processes use different allocators" in report.findings[0]


def test_preloaded_allocator_that_is_not_in_use_is_a_finding():
    report = CHECK.report((replace(JEMALLOC, malloc="glibc"),))
    assert "process 7 does not use jemalloc" in report.findings[0]


def test_allocator_check_fails_when_the_process_does_not_run():
    fleet = ScriptedFleet({("db1", allocator.query_processes("mysqld").command): ""})
    with pytest.raises(CommandError, match="db1 has no process with the name mysqld"):
        CHECK.read(fleet.run_query)


@pytest.mark.parametrize("process", HOSTILE_NAMES)
def test_invalid_process_name_is_refused_before_any_query(process: object):
    with pytest.raises(ValidationError):
        AllocatorCheck.model_validate({"host": "db1", "process": process})
