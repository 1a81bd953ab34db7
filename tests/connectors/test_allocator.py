from pathlib import Path

import pytest

from connectors import allocator
from connectors.allocator import parse_processes
from connectors.command import Answer, Shell, find_failure
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "allocator"
BOTH = (ANSWERS / "sleep.txt").read_text()


def test_malloc_of_a_process_is_read_from_its_mapped_libraries():
    by_malloc = {process.malloc: process for process in parse_processes(BOTH)}
    assert set(by_malloc) == {"glibc", "jemalloc"}
    assert by_malloc["glibc"].settings == ("MALLOC_ARENA_MAX=2",)
    assert by_malloc["jemalloc"].settings == (
        "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
    )
    assert all(2**19 < process.memory_bytes < 2**24 for process in by_malloc.values())


def test_statically_linked_process_has_its_own_malloc():
    (process,) = parse_processes("pid 7\nVmRSS:\t  100 kB\nmap /usr/bin/prometheus\n")
    assert process.malloc == "its own"


def test_library_with_a_name_like_libc_is_not_taken_for_glibc():
    (process,) = parse_processes("pid 7\nVmRSS:\t  100 kB\nmap /lib/libcap.so.2\n")
    assert process.malloc == "its own"
    (older,) = parse_processes("pid 7\nVmRSS:\t  100 kB\nmap /lib/libc-2.31.so\n")
    assert older.malloc == "glibc"


def test_malloc_query_without_processes_is_parsed_as_empty():
    assert parse_processes("") == ()


@pytest.mark.parametrize(
    "answer", ["garbage\n", "pid 7\n", "pid 7\nVmRSS:\t1 kB\n", "pid 7\nmap /lib/libc.so.6\n"]
)
def test_invalid_malloc_answer_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_processes(answer))


def test_process_name_is_escaped_for_pgrep_and_cut_to_15_characters():
    shell = allocator.query_processes("a.out").command
    assert isinstance(shell, Shell)
    assert shell.words[-1] == "a[.]out"
    longer = allocator.query_processes("mariadb-dump-and-more").command
    assert isinstance(longer, Shell)
    assert longer.words[-1] == "mariadb-dump-an"


def test_malloc_query_without_permission_names_the_sudo_rule():
    output = "mawk: cannot open /proc/1/maps (Permission denied)"
    shell = allocator.query_processes("init").command
    assert "sudo rule" in str(find_failure(shell, Answer(0, "", output), frozenset({0})))
