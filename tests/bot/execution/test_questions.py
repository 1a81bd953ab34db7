"""Queries of checks that Keyturn answers itself, without the host."""

from datetime import UTC, datetime, timedelta

from bot.execution.questions import create_query_function
from connectors import history
from runbooks import query_earlier_report
from runbooks.host_changes import HostChanges, HostHistory
from tests.bot.harness import Harness
from tests.toy import SetSwitch, ShowSwitches


def test_keyturn_history_of_a_host_names_requester_and_approver(db_harness: Harness):
    harness = db_harness
    harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    harness.request(ShowSwitches(host="lb1"))
    harness.request(SetSwitch(host="lb1", name="fan", value="on"))
    asked = harness.fleet.asked
    since = datetime.now(UTC) - timedelta(hours=1)
    [event] = create_query_function(harness.context)("lb1", history.query_keyturn(since)).events
    assert (event.kind, event.account) == ("keyturn", "dora")
    assert event.description == "run 1, succeeded: toy set lb1 lamp on, approved by olga"
    assert create_query_function(harness.context)("lb2", history.query_keyturn(since)).events == ()
    assert (
        create_query_function(harness.context)(
            "lb1", history.query_keyturn(datetime.now(UTC) + timedelta(1))
        ).events
        == ()
    )
    assert harness.fleet.asked == asked


def test_keyturn_history_of_a_host_lists_the_periods_of_its_sudo_use(db_harness: Harness):
    harness = db_harness
    harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    harness.request(ShowSwitches(host="lb1"), person="stan")
    since = datetime.now(UTC) - timedelta(hours=1)
    own = create_query_function(harness.context)("lb1", history.query_keyturn(since))
    host = harness.policies.get_policy().inventory["lb1"]
    assert own.accounts == {host.user} - {"root"}
    assert [(span.run, span.requester) for span in own.spans] == [
        (2, "stan"),
        (1, "dora"),
        (1, "dora"),
    ]
    assert all(span.started_at < span.ended_at for span in own.spans)
    assert own.clock is not None
    assert abs(own.clock - datetime.now(UTC)) < timedelta(minutes=1)
    assert [event.run for event in own.events] == [1]


def test_keyturn_events_are_listed_among_the_events_of_the_host():
    since = datetime(2026, 11, 20, tzinfo=UTC)
    ours = history.HostEvent(since, "keyturn", "dora", "run 1, succeeded: toy set lb1 lamp on")
    login = history.HostEvent(since + timedelta(minutes=5), "login", "ada", "logged in on pts/0")
    look = HostChanges.model_validate({"host": "web1", "since": "2026-11-20"})
    report = look.report(HostHistory(since, (ours, login), ()))
    assert report.table is not None
    assert [row[1] for row in report.table.rows] == ["login", "keyturn"]
    assert report.summary.endswith("by ada, dora")


def test_check_can_query_its_previous_report(db_harness: Harness):
    harness = db_harness
    ask = create_query_function(harness.context)
    check = ShowSwitches(host="lb1")
    assert ask("lb1", query_earlier_report(check)) is None
    harness.request(check)
    seen = harness.request(check)
    asked = harness.fleet.asked
    earlier = ask("lb1", query_earlier_report(check, "host"))
    assert earlier is not None
    assert earlier.report == seen.report
    assert seen.ended_at is not None
    assert earlier.time.timestamp() == seen.ended_at / 1_000_000
    assert ask("lb2", query_earlier_report(ShowSwitches(host="lb2"))) is None
    assert ask("lb1", query_earlier_report(ShowSwitches(host="lb2"), "host")) is None
    assert harness.fleet.asked == asked


def test_previous_report_is_none_without_stored_runs():
    query = query_earlier_report(ShowSwitches(host="lb1"))
    assert str(query.command) == "true"
    assert query.parse("") is None
