from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors import disk_write
from connectors.command import Answer, Shell, find_failure
from connectors.disk_write import WriteResult, parse_directory
from connectors.errors import ParseError

ANSWERS = Path(__file__).parent / "answers" / "disk_write"
NEVER = (ANSWERS / "never.txt").read_text()
TRIED = (ANSWERS / "tried.txt").read_text()


def test_disk_write_directory_is_parsed_with_load_and_io_wait():
    place = parse_directory(NEVER)
    assert place.is_root_owned
    assert (place.filesystem, place.mount) == ("ext4", "/")
    assert place.size_bytes > place.free_bytes > 2**30
    assert place.cpus == 4
    assert place.load > 0
    assert place.io_wait is not None
    assert place.last_result is None


def test_last_disk_write_result_is_parsed_and_formatted():
    last = parse_directory(TRIED).last_result
    assert last is not None
    assert (last.directory, last.mib) == ("/srv/data", 64)
    assert last.ended_at <= parse_directory(TRIED).host_time
    result = WriteResult("/srv/data", 64, datetime(2026, 3, 1, 14, 30, tzinfo=UTC), 0.4)
    assert str(result) == (
        "wrote 64 MiB to /srv/data in 0.40 s, 160 MiB/s, at 2026-03-01 14:30:00 UTC"
    )


def test_io_wait_is_unknown_on_a_kernel_without_pressure_information():
    line = next(line for line in NEVER.splitlines() if line.startswith("waited="))
    assert parse_directory(NEVER.replace(line, "waited=")).io_wait is None


def test_directory_in_memory_is_parsed_as_tmpfs():
    assert parse_directory((ANSWERS / "memory.txt").read_text()).filesystem == "tmpfs"


@pytest.mark.parametrize(
    ("owner", "mode", "of_root"),
    [
        (0, "755", True),
        (0, "1777", False),
        (0, "775", False),
        (0, "757", False),
        (5, "755", False),
    ],
)
def test_directory_is_root_owned_when_only_root_may_write_to_it(
    owner: int, mode: str, of_root: bool
):
    answer = NEVER.replace("owner=0 mode=755", f"owner={owner} mode={mode}")
    assert parse_directory(answer).is_root_owned is of_root


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "owner=0 mode=755\n",
        NEVER.replace("df=", "df"),
        NEVER.replace("owner=0", "owner=root"),
        NEVER.replace("cpus=4 ", ""),
        TRIED.replace("copied", "gone"),
        TRIED.replace("64 1", "65 1"),
        TRIED + "more\n",
    ],
)
def test_invalid_disk_write_directory_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_directory(answer)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("keyturn: 1: cd: can't cd to /nosuch", "no such directory"),
        ("others than root can write to the directory", "choose a directory on the same disk"),
        ("dd: error writing 'standard output': No space left on device", "too little free space"),
        ("mktemp: failed to create file: Read-only file system", "read-only"),
    ],
)
def test_disk_write_errors_say_what_to_do(message: str, words: str):
    command = disk_write.write_test_file("/srv", mib=64, seconds=60)
    assert words in str(find_failure(command, Answer(1, "", message), frozenset({0})))


def test_disk_write_test_runs_as_root_with_a_deadline():
    command = disk_write.write_test_file("/srv", mib=64, seconds=60)
    assert isinstance(command, Shell)
    assert (command.deadline, command.root) == (60, True)
