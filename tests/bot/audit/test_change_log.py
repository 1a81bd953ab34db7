import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import text

from bot.audit import change_log, events, verification
from bot.audit.change_log import EntryDraft, LogAlteredError
from bot.audit.event_type import UnknownEvent
from bot.db.database import Database, StoreUnavailable
from bot.model.merkle import Tree
from tests.bot.rewritten_log import drop_triggers


def _fill_log(database: Database, entries: int) -> None:
    with database.transaction() as tx:
        verification.open_log(tx)
        for n in range(1, entries):
            change_log.append_entry(
                tx,
                UnknownEvent(kind="noted", facts={"n": n, "words": "naïve ☃"}),
                person="olga",
                host="lb1",
            )


def _verify(database: Database) -> verification.Verification:
    with database.reading() as tx:
        return verification.verify_log(tx)


def test_empty_change_log_verifies(database: Database):
    empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    assert _verify(database) == verification.Verification(0, empty)


def test_appended_entries_verify(database: Database):
    _fill_log(database, 40)
    verdict = _verify(database)
    assert (verdict.entries, verdict.broken) == (40, None)


@pytest.mark.parametrize("statement", ["UPDATE entry SET person = 'adam'", "DELETE FROM entry"])
def test_change_log_rejects_update_and_delete(database: Database, statement: str):
    _fill_log(database, 3)
    with pytest.raises(StoreUnavailable, match="append-only"), database.transaction() as tx:
        tx.sql.execute(text(statement))
    assert _verify(database).entries == 3


@pytest.mark.parametrize(
    ("tampering", "broken"),
    [
        ("UPDATE entry SET person = 'adam' WHERE seq = 7", 7),
        ("UPDATE entry SET at = at + 1 WHERE seq = 1", 1),
        ("UPDATE entry SET body = '{}' WHERE seq = 5", 5),
        ("UPDATE entry SET hash = '00' WHERE seq = 4", 4),
        ("UPDATE entry SET run = 1 WHERE seq = 9", 9),
        ("DELETE FROM entry WHERE seq = 6", 6),
        ("DELETE FROM entry WHERE seq = 1", 1),
        ("UPDATE entry SET seq = 11 WHERE seq = 8", 8),
        ("UPDATE entry SET kind = 'noted ' WHERE seq = 10", 10),
    ],
)
def test_entry_altered_without_triggers_is_found_by_verification(
    database: Database, tampering: str, broken: int
):
    _fill_log(database, 10)
    drop_triggers(database)
    with database.transaction() as tx:
        tx.sql.execute(text(tampering))
    assert _verify(database).broken == broken


def test_concurrent_writers_append_to_one_log(database: Database):
    _fill_log(database, 1)
    alarms = list[LogAlteredError]()

    def write() -> None:
        left = list(range(10))

        def done() -> None:
            left.pop(0)

        while left:
            # More writers than connections: who waits too long is turned away and comes again.
            try:
                with database.transaction() as tx:
                    change_log.check_newest_entry(tx)
                    change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"n": left[0]}))
                    tx.after_commit(done)
            except LogAlteredError as alarm:
                alarms.append(alarm)
                return
            except StoreUnavailable:
                pass

    writers = [threading.Thread(target=write) for _ in range(50)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert alarms == []
    assert _verify(database).entries == 501


def test_reader_takes_no_entry_that_others_append_meanwhile_for_a_lost_one(database: Database):
    """It sees one state of the log, while this process remembers a newer one."""
    _fill_log(database, 3)
    with database.reading() as tx:
        assert len(change_log.list_entries_after(tx, 0)) == 3
        with database.transaction() as other:
            change_log.append_entry(other, UnknownEvent(kind="noted"))
        assert database.seen_head.tree.size == 4
        assert change_log.get_verified_tree(tx).size == 3
        assert change_log.check_newest_entry(tx).size == 3


def test_signed_tree_that_is_not_the_stored_one_is_not_built_upon(database: Database):
    """A commit whose answer is lost may have failed, and another process have appended since."""
    _fill_log(database, 5)
    other = Tree().add_leaves([bytes([n]) * 32 for n in range(5)])
    database.seen_head.signed = other
    with database.transaction() as tx:
        entry = change_log.append_entry(tx, UnknownEvent(kind="noted"))
        assert tx.log_head != other.add_leaves([bytes.fromhex(entry.hash)])
    assert (_verify(database).entries, _verify(database).broken) == (6, None)


def _draft_entries(count: int) -> list[EntryDraft]:
    return [
        EntryDraft(
            UnknownEvent(kind="noted", facts={"n": n, "said": "☃"}),
            run=n,
            person="olga",
            host=f"web{n}",
        )
        for n in range(count)
    ]


def test_append_entries_puts_each_entry_under_the_signed_root(database: Database):
    _fill_log(database, 3)
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"n": 1}))
        entries = change_log.append_entries(tx, _draft_entries(50))
        change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"n": 2}))
    with database.reading() as tx:
        assert change_log.list_entries_after(tx, 4, limit=50) == entries
        verdict = verification.verify_log(tx)
    assert (verdict.entries, verdict.broken) == (55, None)


def test_append_entries_hashes_an_entry_like_append_entry(database: Database):
    _fill_log(database, 1)
    with database.transaction() as tx:
        [together] = change_log.append_entries(tx, _draft_entries(1))
        alone = change_log.append_entry(
            tx,
            UnknownEvent(kind="noted", facts={"n": 0, "said": "☃"}),
            run=0,
            person="olga",
            host="web0",
        )
    as_first = replace(alone, seq=together.seq)
    assert change_log.hash_entry(tuple(vars(as_first).values())) == together.hash


def test_append_entries_without_entries_does_not_lock_the_log(database: Database):
    with database.transaction() as tx:
        assert change_log.append_entries(tx, []) == []
        assert tx.log_head is None


def test_append_entries_redacts_a_secret_in_one_entry(database: Database):
    database.redactor.add_secrets("correct horse battery")
    _fill_log(database, 1)
    with database.transaction() as tx:
        drafts = [
            *_draft_entries(2),
            EntryDraft(UnknownEvent(kind="noted", facts={"said": "it is correct horse battery"})),
        ]
        *others, last = change_log.append_entries(tx, drafts)
    assert last.facts == {"said": "it is [secret]"}
    assert [entry.facts["n"] for entry in others] == [0, 1]


def test_append_entries_redacts_no_secret_across_two_entries(database: Database):
    _fill_log(database, 1)
    database.redactor.add_secrets('5678"}{"b":"9012')
    with database.transaction() as tx:
        drafts = [
            EntryDraft(UnknownEvent(kind="noted", facts={"a": "5678"})),
            EntryDraft(UnknownEvent(kind="noted", facts={"b": "9012"})),
        ]
        entries = change_log.append_entries(tx, drafts)
    assert [entry.facts for entry in entries] == [{"a": "5678"}, {"b": "9012"}]


def test_announcing_entry_is_written_once_before_the_first_entry_of_its_person(database: Database):
    """And is not told of at all where nothing was done, or was undone."""
    herald = change_log.EntryDraft(UnknownEvent(kind="token used"), run=7, person="olga")
    drafts = [
        change_log.EntryDraft(events.Claimed(), run=7),
        change_log.EntryDraft(UnknownEvent(kind="approved"), run=7, person="olga"),
    ]
    with change_log.announce_with_next_entry(herald):
        with database.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="noted"), person="dora")
            approved = change_log.append_entry(
                tx, UnknownEvent(kind="approved"), run=7, person="olga"
            )
            change_log.append_entry(tx, events.Denied(), run=7, person="olga")
        with database.transaction() as tx:
            entries = change_log.append_entries(tx, drafts)
        with suppress(KeyError), database.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="approved"), run=7, person="olga")
            raise KeyError
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="approved"), run=7, person="olga")
    assert approved.kind == "approved"
    assert [entry.kind for entry in entries] == ["claimed", "approved"]
    with database.reading() as tx:
        kinds = [entry.kind for entry in change_log.list_entries_after(tx, 0)]
    assert kinds == [
        *("noted", "token used", "approved", "denied"),
        *("token used", "claimed", "approved"),
        "approved",
    ]


def test_entries_naming_a_number_are_not_those_of_numbers_that_begin_like_it(database: Database):
    with database.transaction() as tx:
        verification.open_log(tx)
        for number in (1, 12):
            change_log.append_entry(tx, events.ScheduleResumed(schedule=number), run=1)
    kind = events.ScheduleResumed.kind
    with database.reading() as tx:
        assert len(change_log.list_entries_naming(tx, kind, "schedule", 1)) == 1
        assert len(change_log.list_entries_naming(tx, kind, "schedule", 1, run=1)) == 1
