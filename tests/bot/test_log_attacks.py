"""Attacks on the change log by somebody who writes to the database and has no signing key.

Each goes through the service's own workflow and housekeeping, and is held against the command
line's verification and the verifier that shares no code.
"""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, delete, insert, select, update

from bot.audit import change_log, events, evidence, followed_log, verification
from bot.audit.change_log import Entry, LogAlteredError
from bot.audit.checkpoints import Checkpoint
from bot.audit.event_type import UnknownEvent
from bot.audit.spool import Spool
from bot.audit.verification import Verification
from bot.auth import tokens
from bot.db import runs, tables
from bot.db.database import Database, Transaction
from bot.maintenance.housekeeping import Housekeeping
from bot.maintenance.key_rotation import rotate_signing_key
from bot.maintenance.lost_entries import acknowledge_loss
from bot.model import signing
from bot.model.errors import NotAllowed
from bot.model.merkle import Tree
from bot.model.run import Decision, Run, State
from bot.model.signing import KeyFileError
from bot.queries.log_formats import iterate_export
from bot.service import KeyturnService
from tests.bot.audit.test_verification import VERIFIER
from tests.bot.authenticator_app import AuthenticatorApp, enrol_app
from tests.bot.databases import create_sqlite_database
from tests.bot.db.test_grants import grant
from tests.bot.harness import Harness, open_harness
from tests.bot.installation import create_installation
from tests.bot.rewritten_log import entries_of, forge_entries, rehash, rewrite, trust_the_database
from tests.cli_process import run_keyturn
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "changelog.key"


@pytest.fixture
def sealed(tmp_path: Path, key: Path) -> Generator[Harness]:
    """A harness whose log has begun, with its key in a file."""
    database = create_sqlite_database(tmp_path / "keyturn.db", signing.load_signing_key(key))
    with open_harness(tmp_path, database=database) as harness:
        with database.transaction() as tx:
            verification.open_log(tx)
        yield harness


@pytest.fixture
def witnessed() -> list[Checkpoint]:
    return []


@pytest.fixture
def house(sealed: Harness, tmp_path: Path, witnessed: list[Checkpoint]) -> Housekeeping:
    spool = Spool(tmp_path / "changelog.spool")
    return Housekeeping(sealed.database, spool=spool, witnesses=[witnessed.append])


def _forge_approval_entry(harness: Harness, run: Run) -> None:
    """Add an entry that says that an owner approved this plan, signed by another key than ours."""
    with harness.database.transaction() as tx:
        approved = events.Approved(digest=run.digest)
        forge_entries(tx, change_log.EntryDraft(approved, run.id, "olga", run.host))


def _forge_decision_and_queue_run(harness: Harness, run: Run) -> None:
    with harness.database.transaction() as tx:
        runs.add_decision(tx, Decision(run.id, "olga", True, run.digest, tx.now))
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(state="queued"))


def _verify(database: Database, **how: Any) -> Verification:
    with database.reading() as tx:
        return verification.verify_log(tx, **how)


def verify_alone(
    database: Database, directory: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the verifier that shares no code with the service."""
    file = directory / "export.jsonl"
    with database.reading() as tx:
        file.write_text("".join(f"{json.dumps(line)}\n" for line in iterate_export(tx)))
    return subprocess.run(
        [sys.executable, str(VERIFIER), str(file), *options],
        capture_output=True,
        text=True,
        check=False,
    )


class TestRewrittenEntries:
    """Alter an old entry and make all hashes fit again."""

    def _rewritten(self, harness: Harness, *read_by: Housekeeping) -> int:
        """Say that somebody else asked; return the number of that entry."""
        harness.request(LAMP_ON)
        for house in read_by:
            house.run_periodic_tasks()
        entries = entries_of(harness.database)
        n = next(n for n, entry in enumerate(entries) if entry.kind == "requested")
        entries[n] = replace(entries[n], person="adam")
        rewrite(harness.database, rehash(entries))
        return entries[n].seq

    def test_service_never_signs_the_root_of_a_rewritten_change_log(
        self,
        sealed: Harness,
        house: Housekeeping,
        witnessed: list[Checkpoint],
        tmp_path: Path,
    ):
        """It signs what it wrote, not what the database holds. So the alteration stays visible."""
        n = self._rewritten(sealed, house)
        sealed.request(LAMP_ON)
        house.run_periodic_tasks()
        rows = rehash(entries_of(sealed.database))
        assert witnessed[-1].root != _encode_root(rows)
        assert _verify(sealed.database).broken == n
        assert f"BROKEN at entry {n}:" in verify_alone(sealed.database, tmp_path).stderr

    def test_process_that_has_not_read_the_log_adds_nothing_to_a_rewritten_one(
        self, sealed: Harness, house: Housekeeping, witnessed: list[Checkpoint]
    ):
        self._rewritten(sealed)
        before = len(entries_of(sealed.database))
        with pytest.raises(LogAlteredError, match=r"run `keyturn changelog verify`"):
            house.run_periodic_tasks()
        assert len(entries_of(sealed.database)) == before
        assert sealed.database.error
        assert witnessed == []

    def test_new_process_does_not_open_a_rewritten_change_log(self, sealed: Harness, key: Path):
        self._rewritten(sealed)
        fresh = Database(sealed.database.url, signing.load_signing_key(key))
        with (
            fresh.transaction() as tx,
            pytest.raises(LogAlteredError, match="not the one that Keyturn wrote"),
        ):
            verification.open_log(tx)
        fresh.close()

    def test_without_the_head_check_a_new_process_signs_a_rewritten_log(
        self, sealed: Harness, key: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """And the last signature bears it out; the checkpoints before do not."""
        monkeypatch.setattr(change_log, "_verify_newest", trust_the_database)
        n = self._rewritten(sealed)
        fresh = Database(sealed.database.url, signing.load_signing_key(key))
        with fresh.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="noted"))
        with fresh.reading() as tx:
            assert verification.verify_newest_entries(tx, limit=50).broken is None
        fresh.close()
        assert _verify(sealed.database).broken == n
        assert f"BROKEN at entry {n}:" in verify_alone(sealed.database, tmp_path).stderr

    def test_changelog_verify_reports_a_rewritten_entry_and_appends_nothing(self, tmp_path: Path):
        with create_installation(tmp_path) as tx:
            change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"step": 1}))
            change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"step": 2}))
        database = Database(f"sqlite:///{tmp_path / 'var' / 'keyturn.db'}")
        entries = entries_of(database)
        entries[1] = replace(entries[1], body='{"n":7}')
        rewrite(database, rehash(entries))
        for options in ([], ["--key", _get_first_public_key(database)]):
            ended = run_keyturn(tmp_path, "changelog", "verify", *options)
            assert (ended.returncode, ended.stderr[:17]) == (1, "BROKEN at entry 2")
            assert len(entries_of(database)) == len(entries)
        database.close()


def _encode_root(entries: list[Entry]) -> str:
    tree = Tree().add_leaves(bytes.fromhex(entry.hash) for entry in entries)
    return b64encode(tree.root).decode()


class _TakenBackError(Exception):
    pass


def _append_and_roll_back(opened: Callable[[], AbstractContextManager[Transaction]]) -> None:
    with opened() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
        raise _TakenBackError


class TestTruncatedLog:
    """Take the newest entries away while the service is at work."""

    def test_service_appends_no_entry_to_a_truncated_change_log(
        self, sealed: Harness, house: Housekeeping
    ):
        sealed.request(LAMP_ON)
        rewrite(sealed.database, entries_of(sealed.database)[:-1])
        with pytest.raises(LogAlteredError, match="Keyturn wrote entry"):
            house.run_periodic_tasks()

    def test_service_appends_no_entry_to_a_forked_change_log(
        self, sealed: Harness, house: Housekeeping, key: Path
    ):
        sealed.request(LAMP_ON)
        rewrite(sealed.database, entries_of(sealed.database)[:-1])
        other = Database(sealed.database.url, signing.load_signing_key(key))
        with other.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="noted"))
            change_log.append_entry(tx, UnknownEvent(kind="noted"))
        other.close()
        with pytest.raises(LogAlteredError, match="is not the one that Keyturn wrote"):
            house.run_periodic_tasks()

    def test_rolled_back_entries_do_not_count_as_missing_from_the_log(self, sealed: Harness):
        for opened in (sealed.database.transaction, sealed.database.shared_transaction):
            with pytest.raises(_TakenBackError):
                _append_and_roll_back(opened)
        assert sealed.request(LAMP_ON).state is State.PENDING


class TestKeyRotation:
    """Have a forged approval vouched for by the next key."""

    @staticmethod
    def _with_an_entry_on_top(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Run:
        """Forge the approval, and add an entry of the service after it."""
        run = harness.request(LAMP_ON)
        _forge_approval_entry(harness, run)
        with monkeypatch.context() as patch, harness.database.transaction() as tx:
            patch.setattr(change_log, "_verify_newest", trust_the_database)
            change_log.append_entry(tx, UnknownEvent(kind="noted"))
        return run

    def _rotated(self, harness: Harness, key: Path, run: Run) -> None:
        rotate_signing_key(harness.database, key)
        database = Database(harness.database.url, signing.load_signing_key(key))
        fleet = harness.fleet
        parts = replace(harness.context, database=database)
        turned = Harness(KeyturnService(parts), parts, fleet, harness.dispatcher, harness.policies)
        _forge_decision_and_queue_run(turned, run)
        turned.service.advancer.advance_run(run.id)
        database.close()

    def test_service_appends_no_entry_after_a_forged_approval(
        self, sealed: Harness, house: Housekeeping
    ):
        run = sealed.request(LAMP_ON)
        _forge_approval_entry(sealed, run)
        with pytest.raises(LogAlteredError, match="is not signed"):
            house.run_periodic_tasks()

    def test_signing_key_is_not_rotated_over_a_forged_approval(
        self, sealed: Harness, key: Path, monkeypatch: pytest.MonkeyPatch
    ):
        self._with_an_entry_on_top(sealed, monkeypatch)
        public = signing.load_signing_key(key).public_key
        with pytest.raises(KeyFileError, match="is not signed by the key of the log"):
            rotate_signing_key(sealed.database, key)
        assert signing.load_signing_key(key).public_key == public

    def test_without_head_check_and_verification_a_forged_approval_starts_a_run(
        self, sealed: Harness, key: Path, monkeypatch: pytest.MonkeyPatch
    ):
        run = self._with_an_entry_on_top(sealed, monkeypatch)
        monkeypatch.setattr(
            verification, "verify_log", _report_intact_log(verification.verify_log)
        )
        self._rotated(sealed, key, run)
        assert sealed.fleet.sent == [("lb1", "set lamp on")]


def _vouch_for_all(_tx: Transaction, entries: Iterable[Entry]) -> list[Entry]:
    return list(entries)


def _report_intact_log(verify: Callable[..., Verification]) -> Callable[..., Verification]:
    def verified(tx: Transaction, **how: Any) -> Verification:
        return replace(verify(tx, **how), broken=None, keys=(tx.signing_key.public_key,))

    return verified


def _get_first_public_key(database: Database) -> str:
    return str(entries_of(database)[0].facts["public"])


def _delete_entries_of_kinds(database: Database, *kinds: str) -> None:
    """Take out the entries of these kinds, and leave all others as they are."""
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.exec_driver_sql("DROP TRIGGER IF EXISTS entry_no_delete")
        connection.execute(delete(tables.entry).where(tables.entry.c.kind.in_(kinds)))
        connection.commit()
        connection.exec_driver_sql("PRAGMA foreign_keys=ON")


def _append_newer_entry(harness: Harness) -> None:
    """Let something else be the newest entry."""
    with harness.database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))


def _do_nothing(_harness: Harness, _key: Path) -> None: ...


def _run_housekeeping(harness: Harness, key: Path) -> None:
    """Let the service follow the log before anything is taken out of it."""
    Housekeeping(
        harness.database, spool=Spool(key.with_name("changelog.spool"))
    ).run_periodic_tasks()


FOLLOWED = pytest.mark.parametrize("follow", [_do_nothing, _run_housekeeping])


def _save_row_to_restore(database: Database, table: Table) -> Callable[[], None]:
    """Keep the only row of a table, and return what puts it back as it was."""
    with database.reading() as tx:
        row = dict(tx.sql.execute(select(table)).mappings().one())

    def put_back() -> None:
        with database.transaction() as tx:
            tx.sql.execute(delete(table))
            tx.sql.execute(insert(table).values(row))

    return put_back


class TestRemovedRevocations:
    """Remove the entry that a token or a second factor ended, and restore its row."""

    def _revoked_token(self, harness: Harness, kind: str) -> str:
        made, whole = harness.service.tokens.create_token(
            person="dora", scopes=["read"], days=1, source="cli"
        )
        put_back = _save_row_to_restore(harness.database, tables.api_token)
        if kind == "banned":
            harness.service.ban_person("dora", banned_by="adam", reason="she left")
            with harness.database.transaction() as tx:
                followed_log.follow_log(tx)
        else:
            harness.service.tokens.revoke_token(made.id, person="", source="cli")
        _append_newer_entry(harness)
        with harness.database.reading() as tx:
            record = tokens.find_token(tx, whole)
            assert record is not None
            assert record.revoked_at
        _delete_entries_of_kinds(harness.database, kind)
        put_back()
        return whole

    @pytest.mark.parametrize("kind", ["token revoked", "banned"])
    def test_api_token_stays_revoked_when_its_revocation_entry_is_removed(
        self, sealed: Harness, kind: str
    ):
        whole = self._revoked_token(sealed, kind)
        with sealed.database.reading() as tx:
            record = tokens.find_token(tx, whole)
        assert record is not None
        assert record.revoked_at

    def test_without_the_followed_log_a_revoked_api_token_is_valid_again(
        self, sealed: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        whole = self._revoked_token(sealed, "token revoked")
        monkeypatch.setattr(followed_log, "_FOLLOWERS", {})
        with sealed.database.reading() as tx:
            record = tokens.find_token(tx, whole)
        assert record is not None
        assert record.revoked_at is None

    def _removed_app(self, harness: Harness) -> AuthenticatorApp:
        app = enrol_app(harness, "olga")
        put_back = _save_row_to_restore(harness.database, tables.second_factor)
        app.lose()
        _append_newer_entry(harness)
        put_back()
        return app

    def test_removed_second_factor_does_not_count_when_its_row_is_restored(self, sealed: Harness):
        app = self._removed_app(sealed)
        with pytest.raises(NotAllowed):
            app.step_up()

    def test_removed_second_factor_does_not_count_when_its_log_entry_is_removed(
        self, sealed: Harness
    ):
        app = self._removed_app(sealed)
        with sealed.database.transaction() as tx:
            followed_log.follow_log(tx)
        _delete_entries_of_kinds(sealed.database, "factor removed")
        with pytest.raises(LogAlteredError, match="factor removed"):
            app.step_up()

    def test_without_the_followed_log_a_removed_second_factor_counts_again(
        self, sealed: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        app = self._removed_app(sealed)
        _delete_entries_of_kinds(sealed.database, "factor removed")
        monkeypatch.setattr(followed_log, "follow_log", _forget_verified_head)
        app.step_up()


@FOLLOWED
class TestRemovedEntries:
    """Remove entries from the middle: every remaining entry is signed."""

    def _denied(self, harness: Harness, key: Path, follow: Callable[[Harness, Path], None]) -> Run:
        """Approve a request, deny it, and take that out again: the entry and the vote."""
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.service.deny_run(run.id, person="olga", reason="not today")
        _append_newer_entry(harness)
        follow(harness, key)
        _delete_entries_of_kinds(harness.database, "denied")
        with harness.database.transaction() as tx:
            tx.sql.execute(delete(tables.decision))
        _forge_decision_and_queue_run(harness, run)
        return run

    def test_denied_change_does_not_run_when_its_denial_is_removed_from_the_log(
        self, sealed: Harness, key: Path, follow: Callable[[Harness, Path], None]
    ):
        run = self._denied(sealed, key, follow)
        sealed.service.advancer.advance_run(run.id)
        assert sealed.fleet.sent == []

    def test_denied_change_does_not_run_after_a_restart_when_its_denial_is_removed(
        self, sealed: Harness, key: Path, follow: Callable[[Harness, Path], None]
    ):
        run = self._denied(sealed, key, follow)
        database = Database(sealed.database.url, signing.load_signing_key(key))
        with database.transaction() as tx, pytest.raises(LogAlteredError, match="is missing"):
            followed_log.follow_log(tx)
        KeyturnService(replace(sealed.context, database=database)).advancer.advance_run(run.id)
        database.close()
        assert sealed.fleet.sent == []

    def test_without_the_followed_log_and_inclusion_a_denied_change_runs(
        self,
        sealed: Harness,
        key: Path,
        follow: Callable[[Harness, Path], None],
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setattr(evidence, "follow_log", _forget_verified_head)
        monkeypatch.setattr(evidence, "list_vouched_entries", _vouch_for_all)
        run = self._denied(sealed, key, follow)
        sealed.service.advancer.advance_run(run.id)
        assert sealed.fleet.sent == [("lb1", "set lamp on")]

    def _banned(self, harness: Harness, key: Path, follow: Callable[[Harness, Path], None]) -> Run:
        """Approve a request, ban who asked for it, and take that out again."""
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.service.ban_person("dora", banned_by="adam", reason="she left")
        _append_newer_entry(harness)
        follow(harness, key)
        _delete_entries_of_kinds(harness.database, "banned")
        with harness.database.transaction() as tx:
            tx.sql.execute(delete(tables.ban))
        _forge_decision_and_queue_run(harness, run)
        return run

    def test_change_of_a_banned_person_does_not_run_when_the_ban_is_removed(
        self, sealed: Harness, key: Path, follow: Callable[[Harness, Path], None]
    ):
        run = self._banned(sealed, key, follow)
        sealed.service.advancer.advance_run(run.id)
        assert sealed.fleet.sent == []

    def test_without_the_followed_log_and_inclusion_a_banned_persons_change_runs(
        self,
        sealed: Harness,
        key: Path,
        follow: Callable[[Harness, Path], None],
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setattr(evidence, "follow_log", _forget_verified_head)
        monkeypatch.setattr(evidence, "list_vouched_entries", _vouch_for_all)
        run = self._banned(sealed, key, follow)
        sealed.service.advancer.advance_run(run.id)
        assert sealed.fleet.sent == [("lb1", "set lamp on")]

    def test_completed_change_does_not_run_again_when_its_entries_are_removed(
        self, sealed: Harness, key: Path, follow: Callable[[Harness, Path], None]
    ):
        run = sealed.approve(sealed.request(LAMP_ON))
        _append_newer_entry(sealed)
        follow(sealed, key)
        _delete_entries_of_kinds(
            sealed.database, "started", "step sending", "step succeeded", "succeeded"
        )
        sealed.fleet.markers.clear()
        sealed.fleet.hosts["lb1"]["lamp"] = "off"
        with sealed.database.transaction() as tx:
            tx.sql.execute(delete(tables.step))
            tx.sql.execute(
                update(tables.run).where(tables.run.c.id == run.id).values(state="queued")
            )
        sealed.service.advancer.advance_run(run.id)
        assert sealed.fleet.sent == [("lb1", "set lamp on")]


def test_revoked_standing_grant_stays_revoked_when_its_log_entry_is_removed(
    sealed: Harness, key: Path
):
    given = grant(sealed)
    sealed.service.grants.revoke_grant(given.id, person="olga", source="slack")
    _append_newer_entry(sealed)
    _run_housekeeping(sealed, key)
    _delete_entries_of_kinds(sealed.database, "grant revoked")
    with sealed.database.transaction() as tx:
        tx.sql.execute(update(tables.standing_grant).values(revoked_at=None))
    sealed.request(LAMP_ON)
    assert "(grant revoked) was removed" in str(sealed.database.error)
    assert sealed.fleet.sent == []


def _forget_verified_head(_tx: Transaction) -> None: ...


class TestAcknowledgedLosses:
    """Truncate the log with the key at hand, and excuse it by an entry of a restored backup."""

    @staticmethod
    def _cut(harness: Harness) -> tuple[list[Checkpoint], int]:
        """Return what a witness saw, and the first entry that is gone."""
        with harness.database.transaction() as tx:
            first = change_log.append_entry(tx, UnknownEvent(kind="noted")).seq + 1
        harness.request(LAMP_ON)
        with harness.database.transaction() as tx:
            point = verification.create_checkpoint(tx)
        rewrite(harness.database, entries_of(harness.database)[: first - 1])
        harness.database.seen_head.tree = Tree()
        with harness.database.transaction() as tx:
            change_log.append_entry(
                tx,
                UnknownEvent(
                    kind=events.Restored.kind,
                    facts={"entries": first - 1, "seen": first - 1},
                ),
            )
        return [point], first

    def test_change_log_with_lost_entries_is_broken_until_acknowledged(self, sealed: Harness):
        points, first = self._cut(sealed)
        lost = points[0].size - first + 1
        verdict = _verify(sealed.database, witnesses=points)
        assert (verdict.broken, f"--lost {lost}" in verdict.why) == (first, True)
        with sealed.database.transaction() as tx:
            acknowledge_loss(tx, points, first=first, lost_entries=lost, person="adam")
        assert _verify(sealed.database, witnesses=points).broken is None

    def test_loss_without_a_number_of_entries_would_excuse_any_loss(self, sealed: Harness):
        """The twin: the entry alone does not tell how many were lost, so it excuses any."""
        points, first = self._cut(sealed)
        with sealed.database.reading() as tx:
            [loss] = verification.list_losses(tx)
        assert (
            verification.find_loss_of_checkpoint(
                [loss], replace(points[0], size=first + 1_000_000)
            )
            is loss
        )

    def test_acknowledged_loss_does_not_cover_more_entries_that_a_witness_saw(
        self, sealed: Harness
    ):
        points, first = self._cut(sealed)
        with sealed.database.transaction() as tx:
            more = replace(points[0], size=points[0].size + 1)
            acknowledge_loss(
                tx, points, first=first, lost_entries=points[0].size - first + 1, person="adam"
            )
        assert _verify(sealed.database, witnesses=[more]).broken == first

    def test_loss_cannot_be_acknowledged_when_no_entry_was_lost(self, sealed: Harness):
        with sealed.database.transaction() as tx:
            point = verification.create_checkpoint(tx)
        with sealed.database.transaction() as tx, pytest.raises(ValueError, match="nothing was"):
            acknowledge_loss(tx, [point], first=1, lost_entries=1, person="adam")


class TestWitnessAtTheStart:
    def test_process_does_not_start_with_fewer_entries_than_its_witness(self, sealed: Harness):
        sealed.request(LAMP_ON)
        with sealed.database.transaction() as tx:
            point = verification.create_checkpoint(tx)
            verification.check_witness(tx, point)
        rewrite(sealed.database, entries_of(sealed.database)[:-1])
        with (
            sealed.database.transaction() as tx,
            pytest.raises(LogAlteredError, match="a witness saw"),
        ):
            verification.check_witness(tx, point)


@pytest.mark.parametrize("act", [change_log.lock_log, followed_log.follow_log])
def test_lost_log_entries_after_a_failover_are_reported_with_the_fix(
    sealed: Harness, act: Callable[[Transaction], object]
):
    for _ in range(3):
        _append_newer_entry(sealed)
    entries = entries_of(sealed.database)
    written = len(entries)
    rewrite(sealed.database, entries[:-2])
    with sealed.database.transaction() as tx, pytest.raises(LogAlteredError) as stopped:
        act(tx)
    assert f"it ends at entry {written - 2}, but Keyturn wrote entry {written}" in str(
        stopped.value
    )
    assert f"`keyturn changelog acknowledge {written - 1} --lost 2 --as PERSON" in str(
        stopped.value
    )


def test_witnesses_see_the_last_entries_before_a_clean_stop(
    sealed: Harness, house: Housekeeping, witnessed: list[Checkpoint]
):
    house.run_periodic_tasks()
    sealed.request(LAMP_ON)
    house.publish_last_checkpoint()
    assert witnessed[-1].size == len(entries_of(sealed.database))
