"""The timeline of a period, most relevant events first; and the search of log entries."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bot.audit import change_log, events
from bot.audit.event_type import UnknownEvent
from bot.db import runs
from bot.db.database import Database, Transaction
from bot.db.search import RunFilter
from bot.model.run import Run, State
from bot.model.run_states import RUN_STATUS_DISPLAYS
from bot.model.view_rights import ViewRights
from bot.queries import log_search, timeline
from bot.queries.log_search import EntryFilter
from bot.queries.timeline import TimelineEvent
from tests.bot.db.test_search import add, answered

HOUR = 3_600_000_000


def add_succeeded_change(tx: Transaction, host: str = "web1", **more: Any) -> int:
    """Have a change done on a host now."""
    run = add(tx, host=host, **more)
    run = runs.move_run(tx, run, State.QUEUED)
    run = runs.move_run(tx, run, State.STARTING)
    run = runs.move_run(tx, run, State.RUNNING, started_at=tx.now)
    change_log.append_entry(tx, UnknownEvent(kind="started"), run=run.id, host=host)
    return runs.move_run(tx, run, State.SUCCEEDED, ended_at=tx.now, summary="It is on").id


def add_denied_change(tx: Transaction, host: str = "web1") -> int:
    run = runs.move_run(tx, add(tx, host=host), State.PENDING)
    change_log.append_entry(tx, events.Denied(), run=run.id, host=host, person="olga")
    return runs.move_run(tx, run, State.DENIED, ended_at=tx.now, summary="Olga said no").id


def list_events(tx: Transaction, **how: Any) -> Sequence[TimelineEvent]:
    return timeline.build_timeline(tx, tx.now, span=HOUR, **how).events


def test_timeline_ranks_changes_before_denied_runs_and_missed_schedules(database: Database):
    with database.transaction() as tx:
        schedule = add(tx, host="web1")
        change_log.append_entry(
            tx,
            events.FiresMissed(schedule=3, count=2, first=1, last=2),
            run=schedule.id,
            person="dora",
        )
        change_log.append_entry(tx, events.PolicyChanged(old="a", new="b"))
        denied, done = add_denied_change(tx), add_succeeded_change(tx)
        checked = add(tx, kind="check", host="web1")
        change_log.append_entry(tx, UnknownEvent(kind="requested"), run=checked.id)
        ranked = list_events(tx, host_pattern="web*")
    assert [(one.rank, one.run) for one in ranked] == [
        (0, done),
        (1, denied),
        (2, schedule.id),
        (3, None),
    ]
    assert ranked[0].outcome == "It is on"


def test_drift_is_a_timeline_event_apart_from_the_run_that_set_the_value(database: Database):
    with database.transaction() as tx:
        run = add(tx, host="web1").id
        drift = events.DriftFound(key="switch lamp", value="off", set_value="on", state="changed")
        change_log.append_entry(tx, drift, run=run, host="web1")
        (only,) = list_events(tx, host_pattern="web*")
        assert list_events(tx, host_pattern="lb1") == []
    assert (only.rank, only.run) == (0, None)
    assert timeline.describe_event(only) == (
        f"switch lamp changed outside Keyturn on web1: off, set to on by run {run}"
    )


def test_timeline_ranks_runs_that_share_more_hosts_first(database: Database):
    with database.transaction() as tx:
        one, other = add_succeeded_change(tx), add_succeeded_change(tx, "lb1")
        several = add_succeeded_change(tx, hosts=["web1", "web2", "lb1"])
        assert [h.run for h in list_events(tx, host_pattern="web*")] == [several, one]
        assert [h.run for h in list_events(tx, host_pattern="lb1")] == [several, other]
        assert {h.run for h in list_events(tx)} == {several, one, other}


def _end_check(tx: Transaction, **given: Any) -> int:
    """Add a check that needs attention."""
    run = runs.amend_run(tx, add(tx, kind="check", **given), needs_attention=True)
    done = runs.move_run(tx, run, State.SUCCEEDED, ended_at=tx.now, summary="A disk is full")
    ended = events.Succeeded(summary="A disk is full")
    change_log.append_entry(tx, ended, run=run.id, host=run.host)
    return done.id


def test_check_of_several_hosts_is_on_the_timeline_once(database: Database):
    with database.transaction() as tx:
        parent = _end_check(tx, hosts=["web1", "web2", "web3", "lb1"], host="web1")
        child = _end_check(tx, parent=parent, host="lb1")
        other = _end_check(tx, host="lb2")
        assert [one.run for one in list_events(tx)] == [parent, other]
        (found,) = list_events(tx, host_pattern="lb1")
        assert (found.run, found.overlap) == (parent, 1)
        # The host that the reader looks for is the first that lists show.
        assert found.hosts == ("lb1", "web1", "web2", "web3")
        runs.amend_run(tx, runs.get_run(tx, parent), needs_attention=False)
        (found,) = list_events(tx, host_pattern="lb1")
        assert (found.run, found.hosts) == (child, ("lb1",))


def _add_fan_out(tx: Transaction, hosts: Sequence[str]) -> tuple[int, list[int]]:
    """Have a change done on several hosts now. Return its number and those of its children."""
    parent = add_succeeded_change(tx, hosts[0], hosts=hosts)
    return parent, [add_succeeded_change(tx, host, parent=parent) for host in hosts]


def test_change_of_several_hosts_is_on_the_timeline_once(database: Database):
    with database.transaction() as tx:
        parent, children = _add_fan_out(tx, ["web1", "web2", "lb1"])
        (found,) = list_events(tx)
        assert (found.run, found.rank, found.overlap) == (parent, 0, 3)
        (found,) = list_events(tx, host_pattern="lb1 web2")
        # The hosts that the reader looks for are the first that lists show.
        assert (found.run, found.overlap, found.hosts) == (parent, 2, ("web2", "lb1", "web1"))
        # Of one host, its own run says more.
        (found,) = list_events(tx, host_pattern="lb1")
        assert (found.run, found.hosts) == (children[2], ("lb1",))


def test_change_of_several_hosts_is_found_at_the_time_of_its_hosts(database: Database):
    with database.transaction() as tx:
        parent, children = _add_fan_out(tx, ["web1", "web2"])
        long_ago = tx.now - 5 * HOUR
        for number in (parent, children[0]):
            runs.amend_run(tx, runs.get_run(tx, number), started_at=long_ago, ended_at=long_ago)
        runs.amend_run(
            tx,
            runs.get_run(tx, children[1]),
            started_at=tx.now - 3 * HOUR,
            ended_at=tx.now - 3 * HOUR,
        )
        (found,) = timeline.build_timeline(tx, tx.now - 3 * HOUR, span=4 * HOUR).events
        assert (found.run, found.at) == (parent, tx.now - 3 * HOUR)


def _start_long_ago(tx: Transaction, run: Run) -> None:
    for state in (State.QUEUED, State.STARTING):
        run = runs.move_run(tx, run, state)
    runs.move_run(tx, run, State.RUNNING, started_at=tx.now - 5 * HOUR)


def test_change_that_runs_on_and_on_stands_for_its_hosts(database: Database):
    with database.transaction() as tx:
        hosts = ["web1", "web2", "web3", "lb1"]
        parent = add(tx, host="web1", hosts=hosts)
        ran = [add(tx, host=host, parent=parent.id) for host in hosts]
        for run in (parent, *ran[:2]):
            _start_long_ago(tx, run)
        for child in ran[2:]:
            waiting = runs.move_run(tx, child, State.PENDING)
            change_log.append_entry(tx, UnknownEvent(kind="planned"), run=waiting.id, host="lb1")
        (found,) = list_events(tx)
        assert (found.run, found.rank, found.state) == (parent.id, 0, "running")
        (found,) = list_events(tx, host_pattern="web1")
        assert (found.run, found.rank) == (ran[0].id, 0)
        # Nothing has run on these yet.
        for pattern in ("lb1", "web3 lb1"):
            (found,) = list_events(tx, host_pattern=pattern)
            assert (found.run, found.rank, found.has_started) == (parent.id, 1, False)


def test_host_of_a_change_that_may_not_be_viewed_as_a_whole_is_on_the_timeline(
    database: Database,
):
    only_web1 = ViewRights(
        "eve",
        [["web1"], ["lb1"]],
        ["edge"],
        None,
        False,
        [""],
        lambda host, _runbook, _kind: host == "web1",
    )
    with database.transaction() as tx:
        _, children = _add_fan_out(tx, ["web1", "lb1"])
    with database.reading(only_web1) as tx:
        (found,) = list_events(tx)
        assert (found.run, found.hosts) == (children[0], ("web1",))


def test_denied_change_of_several_hosts_is_on_the_timeline_once(database: Database):
    with database.transaction() as tx:
        parent = runs.move_run(tx, add(tx, host="web1", hosts=["web1", "lb1"]), State.PENDING)
        change_log.append_entry(tx, events.Denied(), run=parent.id, person="olga")
        for host in ("web1", "lb1"):
            child = runs.move_run(tx, add(tx, host=host, parent=parent.id), State.PENDING)
            runs.move_run(tx, child, State.DENIED, ended_at=tx.now)
            change_log.append_entry(tx, UnknownEvent(kind="planned"), run=child.id, host=host)
        runs.move_run(tx, parent, State.DENIED, ended_at=tx.now)
        (found,) = list_events(tx)
        assert (found.run, found.rank, found.state) == (parent.id, 1, "denied")


def test_timeline_shows_runs_that_lie_in_or_span_the_period(database: Database):
    with database.transaction() as tx:
        add_succeeded_change(tx)
        assert timeline.build_timeline(tx, tx.now - 3 * HOUR, span=HOUR).events == []
        long = runs.get_run(tx, add_succeeded_change(tx))
        runs.amend_run(tx, long, started_at=tx.now - 5 * HOUR, ended_at=tx.now)
        (only,) = timeline.build_timeline(tx, tx.now - 3 * HOUR, span=HOUR).events
    assert (only.run, only.rank) == (long.id, 0)


def test_timeline_of_a_busy_period_shows_the_nearest_entries_and_its_span(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    moments: list[int] = []
    for _ in range(9):
        with database.transaction() as tx:
            change_log.append_entry(tx, events.PolicyChanged(old="a", new="b"))
            moments.append(tx.now)
    monkeypatch.setattr(log_search, "_MAX_NEAREST_ENTRIES", 3)
    with database.reading() as tx:
        for at in (moments[0], moments[4], moments[-1]):
            seen = timeline.build_timeline(tx, at, span=HOUR)
            nearest = sorted(moments, key=lambda one: abs(one - at))[:3]
            assert {one.at for one in seen.events} == set(nearest)
            assert seen.searched_span == abs(nearest[-1] - at)
        monkeypatch.setattr(log_search, "_MAX_NEAREST_ENTRIES", 9)
        assert timeline.build_timeline(tx, moments[4], span=HOUR).searched_span == HOUR


def test_timeline_counts_the_events_above_its_limit(database: Database):
    with database.transaction() as tx:
        for _ in range(5):
            change_log.append_entry(tx, events.PolicyChanged(old="a", new="b"))
        assert timeline.build_timeline(tx, tx.now, span=HOUR, limit=3).omitted == 2
        assert timeline.build_timeline(tx, tx.now, span=HOUR, limit=5).omitted == 0


def test_state_of_an_event_is_labelled_as_that_of_its_run(database: Database):
    with database.transaction() as tx:
        run = runs.get_run(tx, add_denied_change(tx))
        denied = next(one for one in list_events(tx) if one.run == run.id)
        unchanged = replace(denied, state=State.NO_CHANGES.value)
        assert denied.label == RUN_STATUS_DISPLAYS[run.state].label
    assert unchanged.label == "No changes"
    assert replace(denied, state="drift found").label == "drift found"


def test_timeline_event_is_one_line_with_escaped_control_characters(database: Database):
    with database.transaction() as tx:
        add_succeeded_change(tx, request="toy set web1 a\x1b[31m")
        (one,) = list_events(tx)
    assert timeline.describe_event(one) == "toy set web1 a\\x1b[31m, by dora: It is on"


def test_log_entries_are_found_by_their_text_and_by_their_runs(database: Database):
    with database.transaction() as tx:
        first = add(tx, host="web1", area="stores", requested_by="adam", values={"device": "sdb"})
        other = add(tx, host="web2")
        for run in (first, other):
            change_log.append_entry(
                tx,
                UnknownEvent(kind="requested"),
                run=run.id,
                person=run.requested_by,
                host=run.host,
            )
            answered(tx, run, "DEGRADED" if run is first else "fine")
        change_log.append_entry(tx, events.Banned(banned_person="eve"), person="olga")

        def kinds(**wanted: Any) -> list[tuple[str, int | None]]:
            return [
                (e.kind, e.run)
                for e in log_search.find_newest_entries(tx, EntryFilter(**wanted), limit=9)
            ]

        whole = [("step succeeded", first.id), ("requested", first.id)]
        assert kinds(host="web1") == whole
        assert kinds(host="*1") == whole
        assert kinds(person="olga") == [("banned", None)]
        assert kinds(kind="requested") == [("requested", other.id), ("requested", first.id)]
        assert kinds(kind="requested", host="web*", person="adam") == [("requested", first.id)]
        for sought in (
            RunFilter(area="stores"),
            RunFilter(text=["device=sdb"]),
            RunFilter(text=["degraded"]),
        ):
            assert kinds(run_filter=sought) == whole
        assert kinds(run_filter=RunFilter(area="stores"), host="web2") == []
        assert len(kinds(since=tx.now)) == 5
        assert kinds(since=tx.now + HOUR) == []
        assert kinds(until=tx.now - 1) == []
