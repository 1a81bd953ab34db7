import pytest
from sqlalchemy import select, update

from bot.auth import sessions
from bot.db import dedup, locks, outbox, runs, search, tables
from bot.db.database import Database, Transaction
from bot.model.run import Decision, IllegalTransitionError, RequestOrigin, State
from bot.model.times import DAY


def _add_run(tx: Transaction, host: str = "lb1", person: str = "dora") -> int:
    fields = {"host": host, "name": "lamp"}
    new = runs.NewRun("toy set", "change", fields, host, "edge", person, RequestOrigin("web"))
    return runs.add_run(tx, new).id


def test_run_is_loaded_as_it_was_saved(database: Database):
    with database.transaction() as tx:
        number = _add_run(tx)
    with database.reading() as tx:
        run = runs.get_run(tx, number)
    assert (run.state, run.host, run.values["name"]) == (State.PLANNING, "lb1", "lamp")
    assert run.title == "toy set"


def test_missing_run_is_reported_with_its_number(database: Database):
    with pytest.raises(runs.NoSuchRun, match="no run 77"), database.reading() as tx:
        runs.get_run(tx, 77)


def test_illegal_state_transition_is_rejected(database: Database):
    with database.transaction() as tx:
        run = runs.get_run(tx, _add_run(tx))
        with pytest.raises(IllegalTransitionError):
            runs.move_run(tx, run, State.RUNNING)


def test_transition_with_an_unknown_column_is_rejected(database: Database):
    with database.transaction() as tx:
        run = runs.get_run(tx, _add_run(tx))
        with pytest.raises(TypeError, match="colour"):
            runs.move_run(tx, run, State.PENDING, colour="red")


def test_concurrent_state_transition_is_rejected(database: Database):
    with database.transaction() as tx:
        run = runs.get_run(tx, _add_run(tx))
        runs.move_run(tx, run, State.PENDING)
        with pytest.raises(runs.ConcurrentUpdateError):
            runs.move_run(tx, run, State.WITHDRAWN)


def test_lock_runs_returns_the_current_rows(database: Database):
    with database.transaction() as tx:
        known = [runs.get_run(tx, _add_run(tx, host)) for host in ("lb1", "lb2", "lb3")]
        runs.move_run(tx, known[1], State.PENDING, required_approvals=2)
    with database.transaction() as tx:
        held = {run.id: run for run in runs.lock_runs(tx, known)}
        assert held == {run.id: runs.get_run(tx, run.id) for run in known}
    assert held[known[1].id].required_approvals == 2
    assert held[known[0].id] is known[0]


def test_run_pages_list_every_run_once_newest_first(database: Database):
    with database.transaction() as tx:
        numbers = [_add_run(tx, host=f"lb{n % 3}") for n in range(30)]
    shown: list[int] = []
    before = None
    while True:
        with database.reading() as tx:
            page = search.find_newest_runs(tx, search.RunFilter(before=before), most=7)
        if not page:
            break
        shown += [run.id for run in page]
        before = page[-1].id
    assert shown == sorted(numbers, reverse=True)


def test_run_filters_are_combined(database: Database):
    with database.transaction() as tx:
        _add_run(tx, "lb1", "dora")
        wanted = _add_run(tx, "lb2", "dora")
        _add_run(tx, "lb2", "olga")
        now = tx.now
        both = search.RunFilter(host="lb2", person="dora", runbook="toy set")
        assert [run.id for run in search.find_newest_runs(tx, both)] == [wanted]
        assert (
            len(search.find_newest_runs(tx, search.RunFilter(states=frozenset({State.PLANNING}))))
            == 3
        )
        assert (
            search.find_newest_runs(tx, search.RunFilter(states=frozenset({State.FAILED}))) == []
        )
        assert search.find_newest_runs(tx, search.RunFilter(since=now + 1)) == []
        assert len(search.find_newest_runs(tx, search.RunFilter(until=now))) == 3


def test_second_decision_of_a_person_is_not_stored(database: Database):
    with database.transaction() as tx:
        number = _add_run(tx)
        vote = Decision(number, "olga", approves=True, digest="d", decided_at=tx.now)
        assert runs.add_decision(tx, vote)
        assert not runs.add_decision(tx, vote)
        assert runs.list_decisions(tx, number) == [vote]


def test_host_lock_is_held_by_one_run(database: Database):
    with database.transaction() as tx:
        first, second = _add_run(tx), _add_run(tx)
        assert locks.take_lock(tx, "lb1", first) is None
        assert locks.take_lock(tx, "lb1", first) is None
        holder = locks.take_lock(tx, "lb1", second)
        assert holder is not None
        assert holder.run == first
        locks.release_locks(tx, first)
        assert locks.take_lock(tx, "lb1", second) is None


def test_outbox_merges_updates_of_a_run_and_keeps_later_ones(database: Database):
    with database.transaction() as tx:
        number = _add_run(tx)
        outbox.announce_run(tx, number)
        outbox.announce_run(tx, number)
        (item,) = outbox.list_pending_updates(tx)
        assert item.revision == tx.now + 1
        outbox.announce_run(tx, number)  # while it is being told
        outbox.mark_delivered(tx, item)
        (again,) = outbox.list_pending_updates(tx)
        outbox.mark_delivered(tx, again)
        assert outbox.list_pending_updates(tx) == []
        assert tx.sql.execute(select(tables.outbox)).first() is None


def test_late_delivery_does_not_cover_an_announcement_after_the_delivery(database: Database):
    """Two senders deliver the same, and the run changes between their reports."""
    with database.transaction() as tx:
        number = _add_run(tx)
        outbox.announce_run(tx, number)
        (item,) = outbox.list_pending_updates(tx)
        outbox.mark_delivered(tx, item)
    with database.transaction() as tx:
        tx.now += 1
        outbox.announce_run(tx, number)
        outbox.mark_delivered(tx, item)
        assert [one.run for one in outbox.list_pending_updates(tx)] == [number]


def test_updates_that_no_one_delivers_are_deleted_after_30_days(database: Database):
    with database.transaction() as tx:
        old, new = _add_run(tx), _add_run(tx)
        outbox.announce_run(tx, old)
        outbox.announce_run(tx, new)
        age = tx.now - 31 * DAY
        outboxed = tables.outbox.c
        tx.sql.execute(update(tables.outbox).where(outboxed.run == old).values(revision=age))
        outbox.delete_old_updates(tx)
        assert [one.run for one in outbox.list_pending_updates(tx)] == [new]


def test_postponed_outbox_update_stays_pending(database: Database):
    with database.transaction() as tx:
        number = _add_run(tx)
        outbox.announce_run(tx, number)
        (item,) = outbox.list_pending_updates(tx)
        outbox.postpone_update(tx, item, seconds=60, why="Slack is away")
        assert outbox.list_pending_updates(tx) == []
        outbox.postpone_update(tx, item, seconds=-1, why="back")
        assert [item.run for item in outbox.list_pending_updates(tx)] == [number]


def test_posted_message_is_stored_and_replaced(database: Database):
    with database.transaction() as tx:
        number = _add_run(tx)
        outbox.store_message(tx, outbox.PostedMessage(number, "card", "C1", "1.0", "a"))
        outbox.store_message(tx, outbox.PostedMessage(number, "card", "C1", "2.0", "b"))
        assert outbox.list_messages(tx, number)["card"].ts == "2.0"


def test_deduplication_key_is_new_only_once(database: Database):
    with database.transaction() as tx:
        assert dedup.remember_first(tx, "signature")
        assert not dedup.remember_first(tx, "signature")
        dedup.delete_old_keys(tx)
        assert not dedup.remember_first(tx, "signature")


def test_sign_in_link_works_once(database: Database):
    with database.transaction() as tx:
        token = sessions.create_sign_in_link(tx, "dora")
        assert sessions.use_sign_in_link(tx, "guess") is None
        assert sessions.use_sign_in_link(tx, token) == "dora"
        assert sessions.use_sign_in_link(tx, token) is None


def test_sign_in_link_expires(database: Database):
    with database.transaction() as tx:
        assert (
            sessions.use_sign_in_link(tx, sessions.create_sign_in_link(tx, "dora", seconds=0))
            is None
        )


def test_ended_session_is_not_accepted(database: Database):
    with database.transaction() as tx:
        token = sessions.begin_session(tx, "dora")
        assert sessions.touch_session(tx, token) == "dora"
        sessions.end_session(tx, token)
        assert sessions.touch_session(tx, token) is None
