"""Approvers ask about a pending run, its requester answers, and approvers reassign it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db.runs import NoSuchRun
from bot.model.agents import AgentOrigin
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.redaction import Redactor
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.queries.questions import Discussion, get_answerer, get_discussion, read_discussion
from bot.queries.run_timeline import build_run_events
from tests.bot.clock import MINUTE, Clock
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import get_starter_rules
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def _get_discussion(harness: Harness, run: Run) -> Discussion:
    with harness.database.reading() as tx:
        return get_discussion(tx, run.id)


def _entries(harness: Harness, run: Run) -> list[Entry]:
    with harness.database.reading() as tx:
        return change_log.list_entries_of_run(tx, run.id)


def test_question_and_answer_are_logged_and_the_run_stays_pending(db_harness: Harness) -> None:
    harness = db_harness
    run = harness.request(LAMP_ON)
    harness.service.ask_question(run.id, person="olga", text="which\nticket?")
    assert _get_discussion(harness, run).has_open_question
    harness.service.answer_question(run.id, person="dora", text="4711")
    after = harness.get_run(run.id)
    assert (after.state, after.digest) == (State.PENDING, run.digest)
    assert after.version == run.version + 2
    discussion = _get_discussion(harness, run)
    assert [(one.person, one.text, one.is_answer) for one in discussion.remarks] == [
        ("olga", "which ticket?", False),
        ("dora", "4711", True),
    ]
    assert not discussion.has_open_question
    asked, answered = _entries(harness, run)[-2:]
    assert (asked.kind, answered.kind) == ("question asked", "question answered")
    assert asked.facts == {"digest": run.digest, "text": "which ticket?"}
    titles = [event.title for event in build_run_events([asked, answered], str.capitalize)]
    assert titles == ["Olga asked a question", "Dora answered"]
    assert harness.approve(run).state is State.SUCCEEDED


@pytest.mark.parametrize("person", ["dora", "stan"])
def test_only_an_approver_asks_a_question_or_reassigns_a_run(
    harness: Harness, person: str
) -> None:
    run = harness.request(LAMP_ON)
    with pytest.raises(NotAllowed, match="Those who can: Adam Admin, Olga Owner"):
        harness.service.ask_question(run.id, person=person, text="why?")
    with pytest.raises(NotAllowed, match="Those who can: Adam Admin, Olga Owner"):
        harness.service.reassign_run(run.id, person=person, assignee="adam")
    assert _get_discussion(harness, run) == Discussion([], None)


def test_only_the_requester_answers_and_only_an_open_question(harness: Harness) -> None:
    run = harness.request(LAMP_ON)
    with pytest.raises(TooLate, match="no open question"):
        harness.service.answer_question(run.id, person="dora", text="because")
    harness.service.ask_question(run.id, person="olga", text="why?")
    for person in ("olga", "adam", "stan"):
        with pytest.raises(NotAllowed, match="only Dora Developer"):
            harness.service.answer_question(run.id, person=person, text="because")
    harness.service.answer_question(run.id, person="dora", text="because")
    with pytest.raises(TooLate, match="no open question"):
        harness.service.answer_question(run.id, person="dora", text="and also")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (" \n", "is empty"),
        ("x" * 1001, "has 1001 characters: the limit is 1000"),
        ("left\u202eright", "the (question|answer|reason) "),
        ("the password is tops3cret-value", "contains a password"),
    ],
)
def test_invalid_text_of_a_question_answer_or_reason_is_refused(
    harness: Harness, text: str, error: str
) -> None:
    run = harness.request(LAMP_ON)
    harness.service.ask_question(run.id, person="olga", text="why?")
    harness.database.redactor = Redactor(["tops3cret-value"])
    with pytest.raises(InvalidRequestError, match=error):
        harness.service.ask_question(run.id, person="olga", text=text)
    with pytest.raises(InvalidRequestError, match=error):
        harness.service.answer_question(run.id, person="dora", text=text)
    if text.strip():
        with pytest.raises(InvalidRequestError, match=error):
            harness.service.reassign_run(run.id, person="olga", assignee="adam", reason=text)
    assert len(_get_discussion(harness, run).remarks) == 1


def test_a_decided_run_takes_no_question_answer_or_assignment(harness: Harness) -> None:
    run = harness.request(LAMP_ON)
    harness.service.ask_question(run.id, person="olga", text="why?")
    harness.service.deny_run(run.id, person="olga", reason="no answer")
    acts: list[Callable[[], Run]] = [
        lambda: harness.service.ask_question(run.id, person="adam", text="why?"),
        lambda: harness.service.answer_question(run.id, person="dora", text="because"),
        lambda: harness.service.reassign_run(run.id, person="olga", assignee="adam"),
    ]
    for act in acts:
        with pytest.raises(TooLate, match="denied by Olga Owner"):
            act()


def test_run_is_reassigned_to_an_eligible_approver_only(harness: Harness) -> None:
    run = harness.request(LAMP_ON)
    for person in ("dora", "stan", "nobody", ""):
        with pytest.raises(
            InvalidRequestError, match=r"can still approve it: Adam Admin \(adam\)"
        ):
            harness.service.reassign_run(run.id, person="olga", assignee=person)
    harness.service.reassign_run(run.id, person="olga", assignee="adam", reason="your balancer")
    with pytest.raises(TooLate, match="assigned to Adam Admin already"):
        harness.service.reassign_run(run.id, person="olga", assignee="adam")
    assignment = _get_discussion(harness, run).assignment
    assert assignment is not None
    assert (assignment.assignee, assignment.assigned_by) == ("adam", "olga")
    [event] = build_run_events(_entries(harness, run)[-1:], str.capitalize)
    assert (event.title, event.detail) == ("Reassigned to Adam by Olga", "your balancer")
    # The assignee is asked first; the others may still approve.
    assert harness.approve(run, "olga").state is State.SUCCEEDED


def test_an_approver_who_may_not_view_the_run_is_not_assigned(tmp_path: Path) -> None:
    hidden = get_starter_rules() + (
        'forbid (principal == Person::"adam", action == Action::"view", resource);\n'
    )
    with open_harness(tmp_path, rules=hidden) as harness:
        run = harness.request(LAMP_ON)
        with pytest.raises(InvalidRequestError, match=r"approve it: Olga Owner \(olga\)"):
            harness.service.reassign_run(run.id, person="olga", assignee="adam")
        with pytest.raises(NoSuchRun):
            harness.service.ask_question(run.id, person="adam", text="why?")


def test_a_child_run_is_discussed_with_its_parent(harness: Harness) -> None:
    both = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    parent = harness.service.request_on_hosts(both, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    with pytest.raises(InvalidRequestError, match=f"belongs to run {parent.id}"):
        harness.service.ask_question(parent.id + 1, person="olga", text="why?")
    harness.service.ask_question(parent.id, person="olga", text="why?")


def test_the_assignee_is_reminded_first_and_then_everyone(tmp_path: Path) -> None:
    clock = Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
    with open_harness(tmp_path, database=clock) as harness:
        run = harness.request(LAMP_ON)
        clock.stop()
        harness.service.reassign_run(run.id, person="olga", assignee="adam")

        def remind(minutes: int) -> list[object]:
            """Return whom the reminders until this time name."""
            clock.ahead = minutes * MINUTE
            harness.service.advancer.remind_approvers()
            return [
                entry.facts["people"]
                for entry in _entries(harness, run)
                if entry.kind == "reminded"
            ]

        assert remind(29) == []
        assert remind(31) == [["adam"]]
        assert _get_discussion(harness, run).assignee == "adam"
        assert remind(59) == [["adam"]]
        assert remind(61) == [["adam"], ["adam", "olga"]]
        assert _get_discussion(harness, run).assignment is None
        assert remind(300) == [["adam"], ["adam", "olga"]]


def test_an_assignment_ends_when_the_assignee_approves(tmp_path: Path) -> None:
    two = get_starter_rules().replace('@approvals("1")', '@approvals("2")')
    with open_harness(tmp_path, rules=two) as harness:
        run = harness.request(LAMP_ON)
        harness.service.reassign_run(run.id, person="olga", assignee="adam")
        assert harness.approve(run, "adam").state is State.PENDING
        assert _get_discussion(harness, run).assignment is None
        with pytest.raises(InvalidRequestError, match="Olga Owner"):
            harness.service.reassign_run(run.id, person="olga", assignee="adam")


def test_altered_question_entry_is_no_question() -> None:
    altered = Entry(1, 0, "question asked", 1, "olga", "lb1", "{not json", "")
    assert read_discussion([altered]).remarks == []


def test_question_to_an_agent_is_answered_by_the_person_behind_it(harness: Harness) -> None:
    run = harness.request(LAMP_ON)

    def answerer(agent: AgentOrigin | None) -> str:
        return get_answerer(replace(run, origin=replace(run.origin, agent=agent)))

    assert answerer(None) == "dora"
    assert answerer(AgentOrigin("olga")) == "olga"
    assert answerer(AgentOrigin("olga", behalf="stan")) == "stan"
