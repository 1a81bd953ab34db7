"""What a check asks Keyturn itself, and not the host."""

from datetime import UTC, datetime, timedelta

from bot.execution.questions import asking
from connectors import history
from runbooks import last_time
from runbooks.host_changes import Happened, HostChanges
from tests.bot.office import Office
from tests.toy import SetSwitch, ShowSwitches


def test_what_was_done_on_a_host_is_told_with_who_asked_and_approved(any_office: Office):
    office = any_office
    office.approve(office.ask(SetSwitch(host="lb1", name="lamp", value="on")))
    office.ask(ShowSwitches(host="lb1"))
    office.ask(SetSwitch(host="lb1", name="fan", value="on"))
    asked = office.fleet.asked
    since = datetime.now(UTC) - timedelta(hours=1)
    [event] = asking(office.parts)("lb1", history.ours(since)).events
    assert (event.kind, event.who) == ("keyturn", "dora")
    assert event.what == "run 1, succeeded: toy set lb1 lamp on, approved by olga"
    assert asking(office.parts)("lb2", history.ours(since)).events == ()
    assert asking(office.parts)("lb1", history.ours(datetime.now(UTC) + timedelta(1))).events == ()
    assert office.fleet.asked == asked


def test_what_keyturn_may_have_done_with_sudo_is_told_with_its_times(any_office: Office):
    office = any_office
    office.approve(office.ask(SetSwitch(host="lb1", name="lamp", value="on")))
    office.ask(ShowSwitches(host="lb1"), person="stan")
    since = datetime.now(UTC) - timedelta(hours=1)
    own = asking(office.parts)("lb1", history.ours(since))
    host = office.policies.current().inventory["lb1"]
    assert own.accounts == {host.user} - {"root"}
    assert [(span.run, span.who) for span in own.spans] == [(2, "stan"), (1, "dora"), (1, "dora")]
    assert all(span.begins < span.ends for span in own.spans)
    assert own.now is not None
    assert abs(own.now - datetime.now(UTC)) < timedelta(minutes=1)
    assert [event.run for event in own.events] == [1]


def test_it_stands_among_what_the_host_knows():
    since = datetime(2026, 11, 20, tzinfo=UTC)
    ours = history.Event(since, "keyturn", "dora", "run 1, succeeded: toy set lb1 lamp on")
    login = history.Event(since + timedelta(minutes=5), "login", "ada", "logged in on pts/0")
    look = HostChanges.model_validate({"host": "web1", "since": "2026-11-20"})
    report = look.report(Happened(since, (ours, login), ()))
    assert report.table is not None
    assert [row[1] for row in report.table.rows] == ["login", "keyturn"]
    assert report.summary.endswith("by ada, dora")


def test_a_check_can_ask_what_it_saw_last_time(any_office: Office):
    office = any_office
    ask = asking(office.parts)
    check = ShowSwitches(host="lb1")
    assert ask("lb1", last_time(check)) is None
    office.ask(check)
    seen = office.ask(check)
    asked = office.fleet.asked
    earlier = ask("lb1", last_time(check, "host"))
    assert earlier is not None
    assert earlier.report == seen.report
    assert seen.ended is not None
    assert earlier.at.timestamp() == seen.ended / 1_000_000
    assert ask("lb2", last_time(ShowSwitches(host="lb2"))) is None
    assert ask("lb1", last_time(ShowSwitches(host="lb2"), "host")) is None
    assert office.fleet.asked == asked


def test_who_keeps_no_runs_knows_of_no_last_time():
    query = last_time(ShowSwitches(host="lb1"))
    assert str(query.command) == "true"
    assert query.parse("") is None
