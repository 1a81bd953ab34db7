from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_TIMES
from connectors import clock, history
from connectors.command import Answer
from connectors.errors import CommandError
from connectors.history import HostEvent, KeyturnHistory, RunSpan
from runbooks import Refused
from runbooks.host_changes import HostChanges, HostHistory
from tests.connectors.test_history import recorded
from tests.scripted_fleet import ScriptedFleet

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SINCE = datetime(2026, 11, 20, tzinfo=UTC)
LOOK = HostChanges.model_validate({"host": "web1", "since": "2026-11-20"})
NO_JOURNAL = Answer(0, "-- No entries --\n", "No journal files were found.")


def fleet(since: datetime, *, sudo: str | Answer) -> ScriptedFleet:
    return ScriptedFleet(
        {
            ("web1", clock.query_clock().command): f"{int(NOW.timestamp())}\n",
            ("web1", history.query_keyturn(since).command): "",
            ("web1", history.query_logins(since).command): recorded("starts"),
            ("web1", history.query_sudo(since).command): sudo,
            ("web1", history.query_packages(since).command): recorded("packages-dpkg"),
        }
    )


def test_host_changes_joins_all_sources_newest_first():
    report = LOOK.report(LOOK.read(fleet(SINCE, sudo=recorded("sudo")).run_query))
    assert report.healthy
    assert report.summary == ("9 events on web1 since 2026-11-20 00:00 UTC, by ada, root")
    assert report.table is not None
    assert [row[1] for row in report.table.rows] == ["sudo"] * 4 + ["package"] * 3 + [
        "login",
        "start",
    ]
    assert report.table.rows[-2][2:] == ("ada", "logged in on pts/0 198.51.100.7")


def test_host_changes_reports_an_unreadable_source_and_shows_the_others():
    report = LOOK.report(LOOK.read(fleet(SINCE, sudo=NO_JOURNAL).run_query))
    assert not report.healthy
    assert report.findings[0].startswith(
        "uses of sudo could not be read: this host keeps no journal"
    )
    assert report.summary.startswith("5 events")


def test_host_changes_fails_when_no_source_can_be_read():
    silent = fleet(SINCE, sudo=NO_JOURNAL)
    silent.script("web1", history.query_logins(SINCE).command, Answer(127, "", "last: not found"))
    silent.script("web1", history.query_journal_logins(SINCE).command, NO_JOURNAL)
    silent.script("web1", history.query_packages(SINCE).command, "")
    with pytest.raises(CommandError, match=r"logins: .*uses of sudo: .*packages: "):
        LOOK.read(silent.run_query)


def test_host_changes_reads_logins_from_the_journal_of_a_host_without_last():
    """Debian 13 has no `last`."""
    host = fleet(SINCE, sudo="-- No entries --\n")
    missing = Answer(127, "", "env: 'last': No such file or directory")
    host.script("web1", history.query_logins(SINCE).command, missing)
    at = SINCE.timestamp() + 60
    journal = (
        f"{at:.6f} web1 sshd-session[7]: Accepted publickey for ada from 192.0.2.7 port 9 ssh2"
    )
    host.script("web1", history.query_journal_logins(SINCE).command, f"{journal}\n")
    events = LOOK.read(host.run_query).events
    assert "logged in by SSH from 192.0.2.7 (publickey)" in [each.description for each in events]
    assert not LOOK.read(host.run_query).unread_sources


def test_host_changes_covers_the_last_day_by_default():
    day = HostChanges.model_validate({"host": "web1"})
    happened = day.read(fleet(NOW - timedelta(days=1), sudo=recorded("sudo")).run_query)
    assert happened.since == NOW - timedelta(days=1)


def test_host_changes_ends_at_until():
    fields = {"host": "web1", "since": "2026-11-20", "until": "2026-11-20T13:00Z"}
    look = HostChanges.model_validate(fields)
    everything = LOOK.read(fleet(SINCE, sudo=recorded("sudo")).run_query).events
    happened = look.read(fleet(SINCE, sudo=recorded("sudo")).run_query)
    assert 0 < len(happened.events) < len(everything)
    assert max(event.time for event in happened.events) <= datetime(2026, 11, 20, 13, tzinfo=UTC)
    assert (
        " since 2026-11-20 00:00 UTC until 2026-11-20 13:00 UTC" in look.report(happened).summary
    )


def test_host_changes_without_since_covers_the_day_before_until():
    until = HostChanges.model_validate({"host": "web1", "until": "2026-11-20T12:00Z"})
    day_before = NOW - timedelta(days=2)
    assert until.read(fleet(day_before, sudo=recorded("sudo")).run_query).since == day_before


def test_host_changes_refuses_until_before_since():
    turned = {"host": "web1", "since": "2026-11-20", "until": "2026-11-19"}
    with pytest.raises(Refused, match="2026-11-19 00:00 UTC is before the start"):
        HostChanges.model_validate(turned).read(fleet(SINCE, sudo="").run_query)


@pytest.mark.parametrize("since", ["2026-11-22", "2026-08-20", "1970-01-01"])
def test_host_changes_refuses_since_in_the_future_or_over_92_days_ago(since: str):
    look = HostChanges.model_validate({"host": "web1", "since": since})
    with pytest.raises(Refused, match="the last 92 days"):
        look.read(fleet(SINCE, sudo="").run_query)


def at(minute: int, second: int = 0) -> datetime:
    return SINCE + timedelta(minutes=minute, seconds=second)


def _make_request(**fields: object) -> HostChanges:
    return HostChanges.model_validate({"host": "web1", "since": "2026-11-20", **fields})


BY_KEYTURN = "/usr/sbin/zpool status -v as root"
OWN = KeyturnHistory(
    events=(
        HostEvent(at(10), "keyturn", "dora", "run 7, succeeded: zfs scrub start nas1 tank", 7),
    ),
    accounts=frozenset({"keyturn", "looker"}),
    spans=(
        RunSpan(at(9), at(11), 7, "dora", "run 7, succeeded: zfs scrub start nas1 tank"),
        RunSpan(at(20), at(21), 8, "stan", "run 8, succeeded: zfs pools nas1"),
    ),
)
HAPPENED = HostHistory(
    SINCE,
    (
        *(HostEvent(at(10, n), "sudo", "keyturn", BY_KEYTURN) for n in range(30)),
        OWN.events[0],
        *(HostEvent(at(20, n), "sudo", "looker", BY_KEYTURN) for n in range(20)),
        HostEvent(at(20, 30), "sudo", "ada", "/usr/bin/vim /etc/fstab as root"),
        *(HostEvent(at(40, n), "sudo", "keyturn", BY_KEYTURN) for n in range(3)),
        HostEvent(at(41), "sudo", "keyturn", "/bin/bash as root"),
    ),
    (),
    OWN,
)


def rows(look: HostChanges, happened: HostHistory = HAPPENED) -> list[tuple[str, ...]]:
    table = look.report(happened).table
    assert table is not None
    return [tuple(row[1:]) for row in table.rows]


def test_host_changes_groups_sudo_commands_of_keyturn_by_run():
    assert rows(LOOK) == [
        ("sudo", "keyturn", "/bin/bash as root (by Keyturn's login, outside of its runs)"),
        (
            *("sudo", "keyturn"),
            f"{BY_KEYTURN} (by Keyturn's login, outside of its runs, 3 times since "
            "2026-11-20 00:40)",
        ),
        ("sudo", "ada", "/usr/bin/vim /etc/fstab as root"),
        ("keyturn", "stan", "run 8, succeeded: zfs pools nas1; 20 uses of sudo"),
        (
            *("keyturn", "dora"),
            "run 7, succeeded: zfs scrub start nas1 tank; 30 uses of sudo",
        ),
    ]


def test_host_changes_lists_each_sudo_command_with_each():
    assert len(rows(_make_request(each=True))) == len(HAPPENED.events)


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"kind": "sudo"}, 3),
        ({"kind": "keyturn"}, 2),
        ({"kind": "login"}, 0),
        ({"who": "ada"}, 1),
        ({"who": "keyturn", "kind": "sudo"}, 2),
        ({"who": "looker", "kind": "sudo", "each": True}, 20),
    ],
)
def test_host_changes_filters_by_kind_and_person(fields: dict[str, object], count: int):
    look = _make_request(**fields)
    assert len(rows(look)) == count
    assert look.report(HAPPENED).summary.startswith(f"{count} event")


def test_host_changes_matches_runs_when_the_host_clock_is_slow():
    slow = timedelta(minutes=30)
    events = tuple(
        replace(event, time=event.time - slow) if event.kind == "sudo" else event
        for event in HAPPENED.events
    )
    behind = replace(HAPPENED, events=events, clock_lead=slow)
    rows_shown = {row for row in rows(LOOK, behind) if row[0] == "keyturn"}
    assert rows_shown == set(rows(_make_request(kind="keyturn")))


def test_host_changes_attributes_no_sudo_command_to_keyturn_when_it_logs_in_as_root():
    as_root = replace(HAPPENED, keyturn=replace(OWN, accounts=frozenset()))
    assert len(rows(LOOK, as_root)) == len(HAPPENED.events)


def test_host_changes_lists_the_last_200_events():
    events = tuple(
        HostEvent(SINCE + timedelta(seconds=n), "package", "", f"install {n}") for n in range(250)
    )
    report = LOOK.report(HostHistory(SINCE, events, ()))
    assert report.table is not None
    assert len(report.table.rows) == 200
    assert report.table.rows[0][3] == "install 249"
    assert report.findings == [
        "only the last 200 of 250 are shown: request a shorter time, or use kind= or who="
    ]


@pytest.mark.parametrize("since", HOSTILE_TIMES)
def test_host_changes_refuses_an_invalid_time(since: object):
    with pytest.raises(ValidationError):
        HostChanges.model_validate({"host": "web1", "since": since})
