"""Kinds of entries: what is stored can be read again, and what is damaged is no event of ours."""

from typing import Any

import pytest

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.audit.event_type import PERSON, Event, UnknownEvent, parse_event
from bot.db.database import Database
from bot.model.canonical import encode_canonical
from bot.model.run import ENDED_STATES, State, StepState
from tests.events import build_event

every_event = pytest.mark.parametrize("event_type", events.EVENT_TYPES, ids=lambda one: one.kind)


@every_event
def test_event_of_every_kind_is_read_as_it_was_written(event_type: type[Event]):
    event = build_event(event_type)
    facts = event.encode()
    assert facts.keys() == vars(event).keys()
    assert parse_event(event_type.kind, encode_canonical(facts)) == event
    assert type(parse_event(event_type.kind, encode_canonical(facts))) is event_type


@every_event
def test_event_of_every_kind_is_described_for_people(event_type: type[Event]):
    for event in (build_event(event_type), build_event(event_type, "{0} {reason} {")):
        shown = event.describe("Olga {who}", "lb1", lambda person: f"<{person}>")
        assert shown.title
    assert (event_type.__doc__ or "").endswith(".")


def test_facts_with_their_default_are_left_out():
    event = events.Approved(digest="4f2a", reason="", factor="")
    assert event.encode() == {"digest": "4f2a"}
    assert parse_event("approved", '{"digest":"4f2a"}') == event


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("approved", '{"digest":"4f2a","weight":2}'),
        ("approved", '{"digest":4}'),
        ("approved", "{}"),
        ("approved", "[]"),
        ("approved", "not JSON"),
        ("approved", "[" * 100_000),
        ("approved", '{"digest":"\ud800"}'),
        ("approved", None),
        ("approved", 5),
        ("approved", b'{"digest":"\xff"}'),
        ("started", '{"digest":"4f2a","parent_run":"7"}'),
        ("followed up", '{"healthy":1,"summary":"fine"}'),
        ("of tomorrow", '{"digest":"4f2a"}'),
        (None, None),
    ],
)
def test_damaged_entry_holds_an_unknown_event(kind: Any, body: Any):
    event = Entry(1, 0, kind, None, "", "", body, "").event
    assert isinstance(event, UnknownEvent)
    assert event.describe("Olga", "", str).title


def test_event_that_this_version_does_not_know_keeps_its_facts(database: Database):
    facts = {"of": ["tomorrow"], "summary": "{who} did it"}
    with database.transaction() as tx:
        entry = change_log.append_entry(tx, UnknownEvent(kind="new", facts=facts))
    assert entry.event == UnknownEvent(kind="new", facts=facts)
    assert entry.event.describe("Olga", "", str).detail == "{who} did it"


def test_two_events_of_one_kind_are_refused():
    with pytest.raises(TypeError, match="approved"):
        type("Twin", (Event,), {"__module__": __name__}, kind="approved")


def test_event_that_revokes_an_unknown_fact_is_refused():
    with pytest.raises(TypeError, match="no field"):
        type("Odd", (Event,), {"__module__": __name__}, kind="odd", revokes="token")


def test_every_end_of_a_run_or_step_has_an_event():
    assert set(events.RUN_ENDS) == {*ENDED_STATES, State.UNKNOWN}
    assert all(kind.kind == state for state, kind in events.RUN_ENDS.items())
    assert set(events.STEP_ENDS) == set(StepState) - {StepState.INTENT}
    final = {kind.kind for kind in events.RUN_ENDS.values() if kind.decides}
    assert final == events.FINAL_KINDS


def test_only_requests_may_be_made_by_agents():
    assert {each.kind for each in events.EVENT_TYPES if each.by_agent} == {
        *("plan requested", "requested", "withdrawn", "rate limited", "agent refused")
    }


def test_entries_that_must_not_disappear_are_these():
    decides = {each.kind for each in events.EVENT_TYPES if each.decides}
    assert decides == {
        *("requested", "proposed", "accepted", "planned", "escalated", "approved", "started"),
        *("stop requested", "step sending", "step succeeded", "break-glass activated"),
        *("held", "request signed", "scheduled", "schedule resumed", "schedule suspended"),
        *("schedule ended", "schedule lapsed"),
        *(state.value for state in ENDED_STATES),
    }
    assert {each.kind: each.revokes for each in events.EVENT_TYPES if each.revokes} == {
        "agent ended": "agent",
        "banned": "banned_person",
        "break-glass activated": PERSON,
        "delegation revoked": "delegation",
        "everything stopped": PERSON,
        "factor removed": "factor",
        "grant revoked": "grant",
        "person deprovisioned": "stay",
        "review required": PERSON,
        "token revoked": "token",
    }


def test_title_leaves_out_who_did_it_if_no_person_did():
    assert events.StopRequested().describe("", "", str).title == "Stop requested"
    assert events.Withdrawn(summary="why").describe("", "", str).detail == "why"
    assert events.Withdrawn(summary="why").describe("Dora", "", str).detail == ""
