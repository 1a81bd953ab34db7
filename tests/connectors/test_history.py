"""Parsers of last, the journal, dpkg and rpm, with recorded output."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors import history
from connectors.command import Answer, Shell, find_failure
from connectors.history import HostEvent, parse_logins, parse_packages, parse_sudo
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "history"


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def test_logins_and_boots_of_last_are_parsed():
    assert parse_logins(recorded("starts")) == (
        HostEvent(
            datetime(2026, 11, 20, 8, 0, 1, tzinfo=UTC),
            "login",
            "ada",
            "logged in on pts/0 198.51.100.7",
        ),
        HostEvent(datetime(2026, 11, 20, 6, 25, 34, tzinfo=UTC), "start", "", "the host started"),
    )
    logins = parse_logins(recorded("logins"))
    assert len(logins) == 8
    assert {event.account for event in logins} == {"root"}


def test_history_without_logins_and_sudo_is_parsed_as_empty():
    assert parse_logins(recorded("nobody")) == ()
    assert parse_sudo(recorded("sudo-none")) == ()


def test_sudo_commands_in_the_journal_are_parsed():
    events = parse_sudo(recorded("sudo"))
    assert len(events) == 4
    assert events[-1] == HostEvent(
        datetime.fromtimestamp(1795262356.738728, UTC),
        "sudo",
        "root",
        "/bin/echo 'hello ; world' as root",
    )
    assert events[0].description == "/usr/bin/true as nobody"


def test_sudo_command_that_contains_a_user_field_is_not_attributed_to_it():
    line = (
        "1795262356.7 vm sudo[42]:     ada : PWD=/ ; USER=nobody ; COMMAND=/bin/echo ; USER=root"
    )
    (event,) = parse_sudo(line)
    assert event.description == "/bin/echo ; USER=root as nobody"


def test_refused_sudo_command_is_shown_as_refused():
    # As sudoers(5) describes it: a reason stands before the fields.
    line = (
        "1795262356.7 vm sudo:     eve : command not allowed ; TTY=pts/0 ; PWD=/ ; USER=root ; "
        "COMMAND=/bin/sh"
    )
    (event,) = parse_sudo(line)
    assert event.description == "was refused (command not allowed): /bin/sh as root"


def test_package_changes_of_dpkg_are_parsed():
    events = parse_packages(recorded("packages-dpkg"))
    assert len(events) == 12
    assert events[0] == HostEvent(
        datetime(2025, 6, 24, 14, 36, 25, tzinfo=UTC),
        "package",
        "",
        "upgrade libsystemd0 252.36-1~deb12u1 → 252.38-1~deb12u1",
    )
    assert events[1].description == "install perl-modules-5.36 5.36.0-7+deb12u2"


# 21 November 2026 and 7 July 2026.
WINTER, SUMMER = 1795262203, 1783382400


@pytest.mark.parametrize(
    ("first", "logged", "at"),
    [
        (f"{WINTER} +0100 Europe/Berlin", "2026-11-01 12:00:00", (11, 1, 11, 0)),
        (f"{WINTER} +0100 Europe/Berlin", "2026-07-01 12:00:00", (7, 1, 10, 0)),
        (f"{SUMMER} +0200 Europe/Berlin", "2026-01-05 12:00:00", (1, 5, 11, 0)),
        (f"{WINTER} -0330 America/St_Johns", "2026-07-01 12:00:00", (7, 1, 14, 30)),
    ],
)
def test_dpkg_times_are_read_in_the_hosts_zone_of_that_date(
    first: str, logged: str, at: tuple[int, int, int, int]
):
    (event,) = parse_packages(f"{first}\n{logged} remove perl:amd64 5.36 <none>\n")
    assert event.time == datetime(2026, *at, tzinfo=UTC)
    assert event.description == "remove perl 5.36"


@pytest.mark.parametrize("zone", ["", " Local/Nowhere", " ../../etc/passwd", " Europe/Berlin"])
def test_dpkg_times_assume_the_current_offset_when_the_zone_is_unknown(zone: str):
    answer = f"{WINTER} +0530{zone}\n2026-07-01 12:00:00 remove perl:amd64 5.36 <none>\n"
    (event,) = parse_packages(answer)
    assert event.time == datetime(2026, 7, 1, 6, 30, tzinfo=UTC)
    assert event.description == "remove perl 5.36 (time zone unknown: UTC+05:30 assumed)"


def test_package_changes_of_rpm_are_parsed():
    (event,) = parse_packages(recorded("packages-rpm"))
    assert event.description == "install keyturn-example 1.2-3.noarch"
    assert event.time == datetime.fromtimestamp(1795262203, UTC)


def test_package_changes_before_the_window_are_left_out():
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(history.query_packages(since).parse(recorded("packages-dpkg"))) == 3


@pytest.mark.parametrize(
    ("parse", "answer"),
    [
        (parse_logins, ""),
        (parse_logins, "garbage\n"),
        (parse_logins, "root pts/0 yesterday\n\nwtmp begins 2026-11-21T11:38:10+00:00\n"),
        (parse_sudo, ""),
        (parse_sudo, "Nov 21 11:59:14 vm sudo[27]: root : COMMAND=/bin/true\n"),
        (parse_packages, ""),
        (parse_packages, "UTC\n"),
        (parse_packages, "+0000\n"),
        (parse_packages, f"{WINTER} +0000 UTC\n2026-11-21 10:34:19 upgrade perl\n"),
    ],
)
def test_invalid_history_answer_is_not_understood(parse: object, answer: str):
    assert callable(parse)
    assert not is_understood(lambda: parse(answer))


@pytest.mark.parametrize(
    ("query", "answer", "means"),
    [
        (
            history.query_sudo(datetime.now(UTC)),
            Answer(0, "-- No entries --\n", "No journal files were found."),
            "keeps no journal",
        ),
        (
            history.query_logins(datetime.now(UTC)),
            Answer(127, "", "env: ‘last’: No such file or directory"),
            "install wtmpdb",
        ),
    ],
)
def test_missing_history_source_is_reported(
    query: history.Query[history.Events], answer: Answer, means: str
):
    assert isinstance(query.command, Shell)
    assert means in str(find_failure(query.command, answer, frozenset({0})))
