"""The gate checks again who is on duty: by the clock, and by the age of the calendar reading."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.db import break_glass, locks
from bot.model.errors import NotAllowed
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.service import KeyturnService
from tests.bot.clock import MINUTE, Clock
from tests.bot.databases import create_sqlite_database
from tests.bot.duties import add_calendar
from tests.bot.features.oncall.calendars import HOUR, set_duty, with_duties
from tests.bot.features.oncall.test_duties import ALONE
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import get_starter_rules
from tests.toy import SetAll, SetSwitch, ShowSwitches

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
LAMP_OFF = SetSwitch(host="lb1", name="lamp", value="off")


class Duties:
    """A harness whose calendar says who is on duty."""

    def __init__(self, harness: Harness, database: Clock) -> None:
        self.harness, self.clock = harness, database
        add_calendar(harness.policies.path)
        policies = with_duties(harness.policies, database)
        harness.context = replace(harness.context, policies=policies)
        harness.service = KeyturnService(harness.context)
        # It holds the host until runs are started.
        self.holder = harness.request(ShowSwitches(host="lb1"))

    def set_duty(self, *people: str, minutes: int = 24 * 60) -> None:
        set_duty(self.clock, self.harness.policies, *people, minutes=minutes)

    def request(self, change: SetSwitch = LAMP_ON) -> Run:
        """Request and plan a change; it is not started yet."""
        with self.clock.transaction() as tx:
            locks.take_lock(tx, "lb1", self.holder.id)
        return self.harness.request(change, reason="dark")

    def start(self, run: Run) -> Run:
        with self.clock.transaction() as tx:
            locks.release_locks(tx, self.holder.id)
        self.harness.service.advancer.advance_run(run.id)
        self.harness.run_queued_work()
        return self.harness.get_run(run.id)


@pytest.fixture
def duties(tmp_path: Path) -> Generator[Duties]:
    key, file = SigningKey.create(), tmp_path / "keyturn.db"
    create_sqlite_database(file, key).close()
    database = Clock(f"sqlite:///{file}", key)
    rules = get_starter_rules() + ALONE
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "oncall.yaml").write_text("oncall:\n  edge: {file: edge.ics}\n")
    with open_harness(tmp_path, rules=rules, database=database) as harness:
        yield Duties(harness, database)


def test_person_alone_on_duty_starts_a_change_that_another_person_reviews(
    duties: Duties,
) -> None:
    duties.set_duty("dora")
    run = duties.request()
    assert (run.state, run.required_approvals) == (State.QUEUED, 0)
    run = duties.start(run)
    assert run.state is State.SUCCEEDED
    harness = duties.harness
    with harness.database.reading() as tx:
        entries = {one.kind: one for one in change_log.list_entries_of_run(tx, run.id)}
        entry = entries["review required"]
        assert (entry.person, entry.facts["on_duty"]) == ("dora", {"edge": ["dora"]})
        assert entry.facts["rules"] == ["on call and alone"]
        [review] = break_glass.list_unreviewed(tx)
        assert (review.run, review.deed) == (run.id, "ran a change without approval")
    actions = harness.service.break_glass
    with pytest.raises(NotAllowed, match="another person has to review this"):
        actions.review_break_glass(run.id, person="dora", findings="it was me, and it is fine")
    actions.review_break_glass(run.id, person="olga", findings="it was right to do so")
    with harness.database.reading() as tx:
        assert break_glass.list_unreviewed(tx) == []


def test_on_duty_rule_does_not_apply_while_an_older_run_is_not_reviewed(
    duties: Duties,
) -> None:
    duties.set_duty("dora")
    run = duties.start(duties.request())
    duties.clock.ahead = 25 * HOUR
    duties.set_duty("dora")
    again = duties.request(LAMP_OFF)
    assert (again.state, again.required_approvals) == (State.PENDING, 1)
    duties.harness.service.break_glass.review_break_glass(
        run.id, person="olga", findings="it was right to do so"
    )
    # The twin, after the review.
    third = duties.request(LAMP_OFF)
    assert (third.state, third.required_approvals) == (State.QUEUED, 0)


@pytest.mark.parametrize(
    ("what", "starts"),
    [
        ("nothing", True),
        ("the duty ends", False),
        ("another person comes on duty", False),
        ("the reading is too old", False),
    ],
)
def test_queued_change_needs_an_approval_when_its_requester_is_no_longer_on_duty(
    duties: Duties, what: str, starts: bool
) -> None:
    duties.set_duty("dora", minutes=30)
    run = duties.request()
    assert run.state is State.QUEUED
    if what == "the duty ends":
        duties.clock.ahead = 30 * MINUTE
    elif what == "another person comes on duty":
        duties.set_duty("dora", "adam")
    elif what == "the reading is too old":
        duties.set_duty("dora")
        duties.clock.ahead = 60 * MINUTE
    run = duties.start(run)
    assert run.state is (State.SUCCEEDED if starts else State.PENDING)
    assert len(duties.harness.fleet.sent) == starts
    assert ("review required" in duties.harness.list_entry_kinds(run)) is starts
    if not starts:
        with duties.harness.database.reading() as tx:
            [entry] = change_log.list_entries_of_run(tx, run.id, ["more approvals needed"])
        is_stale = what == "the reading is too old"
        assert (
            "on-call calendars are not current: edge." in str(entry.facts["reason"])
        ) is is_stale
        # Approved by another person, it needs no review.
        run = duties.harness.approve(run)
        assert run.state is State.SUCCEEDED
        assert "review required" not in duties.harness.list_entry_kinds(run)


def test_running_change_continues_when_the_shift_ends(duties: Duties) -> None:
    duties.set_duty("dora", minutes=30)
    harness, steps = duties.harness, SetAll(host="lb1", value="on")
    harness.fleet.hosts["lb1"] = {"fan": "off", "lamp": "off"}

    def pass_time(_host: str, _words: str) -> None:
        duties.clock.ahead = 31 * MINUTE

    harness.fleet.before_send = pass_time
    run = harness.request(steps)
    assert (run.state, len(harness.fleet.sent)) == (State.SUCCEEDED, 2)
    # The twin, which starts after the shift.
    assert harness.request(LAMP_OFF).state is State.PENDING


def test_request_of_the_person_on_duty_for_several_hosts_needs_one_review(duties: Duties) -> None:
    duties.set_duty("dora")
    harness = duties.harness
    for host in ("lb1", "lb2"):
        harness.fleet.hosts[host] = {"fan": "off", "lamp": "off"}
    run = harness.service.request_on_hosts(
        [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")],
        RequestTerms("dora", WEB),
        host_pattern="lb*",
    )
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED
    with harness.database.reading() as tx:
        assert [one.run for one in break_glass.list_unreviewed(tx)] == [run.id]
