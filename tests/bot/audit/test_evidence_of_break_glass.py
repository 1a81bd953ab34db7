"""The signed log decides about break-glass, and approvals under an older signing key."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from sqlalchemy import Table, update

from bot.audit import change_log, events, evidence, verification
from bot.audit.change_log import Entry
from bot.audit.event_type import UnknownEvent
from bot.db import runs, tables
from bot.db.database import Database, Transaction
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model import signing
from bot.model.errors import NotAllowed
from bot.model.run import Run, State
from bot.model.signing import KeyFileError, SigningKey
from tests.bot.authenticator_app import enrol_and_step_up, enrol_app
from tests.bot.clock import Clock
from tests.bot.harness import Harness, open_harness
from tests.bot.rewritten_log import entries_of, rehash, rewrite
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
DAY = 24 * 3_600_000_000
WHY = "all customers see an error page"


def find_no_reason(*_: object) -> str:
    return ""


def amend(tx: Transaction, table: Table, **values: object) -> None:
    tx.sql.execute(update(table).values(**values))


class TestForgedBreakGlass:
    """The rows of break-glass and of its review are forged."""

    @pytest.fixture
    def clock(self, tmp_path: Path) -> Clock:
        return Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())

    @pytest.fixture
    def timed(self, tmp_path: Path, clock: Clock) -> Generator[Harness]:
        with open_harness(tmp_path, database=clock) as harness:
            harness.fleet.hosts["web1"] = {"fan": "off", "lamp": "off"}
            yield harness

    def _forged(self, harness: Harness) -> Run:
        """Let Adam's request look as if he had broken the glass for it."""
        app = enrol_app(harness, "adam")
        wanted = SetSwitch(host="web1", name="lamp", value="on")
        run = harness.request(wanted, person="adam", reason="the cellar is dark")
        harness.service.break_glass.request_break_glass(run.id, person="adam", reason=WHY)
        with harness.database.transaction() as tx:
            factor = app.factor.digest
            amend(
                tx,
                tables.break_glass,
                activated_at=tx.now,
                active_until=tx.now + DAY // 48,
                factor=factor,
            )
            tx.sql.execute(
                update(tables.run).where(tables.run.c.id == run.id).values(state="queued")
            )
        harness.service.advancer.advance_run(run.id)
        return harness.get_run(run.id)

    def test_forged_break_glass_row_does_not_start_a_run(self, timed: Harness):
        assert self._forged(timed).state in {State.PENDING, State.REFUSED}
        assert timed.fleet.sent == []

    def test_without_the_evidence_check_forged_break_glass_starts_a_run(
        self, timed: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_break_glass", find_no_reason)
        assert self._forged(timed).state is State.SUCCEEDED

    def _again_after_a_day(self, harness: Harness, clock: Clock) -> None:
        """Break glass, write a review of it behind the log's back, and want to do it again."""
        app = enrol_and_step_up(harness, "adam")
        for value in ("on", "dim"):
            wanted = SetSwitch(host="web1", name="lamp", value=value)
            run = harness.request(wanted, person="adam", reason="the cellar is dark")
            if value == "dim":
                harness.service.break_glass.request_break_glass(run.id, person="adam", reason=WHY)
                continue
            harness.service.break_glass.activate_break_glass(
                run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
            )
            harness.run_queued_work()
            clock.ahead += DAY + DAY // 24
            with harness.database.transaction() as tx:
                amend(
                    tx,
                    tables.break_glass,
                    reviewed_at=tx.now,
                    reviewer="olga",
                    review="all is well",
                )

    def test_forged_review_of_break_glass_does_not_count(self, timed: Harness, clock: Clock):
        with pytest.raises(NotAllowed, match="your run 1 is older than a day and not reviewed"):
            self._again_after_a_day(timed, clock)

    def test_without_the_log_a_forged_review_of_break_glass_counts(
        self, timed: Harness, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "get_unreviewed_run", skip_lapse_check)
        self._again_after_a_day(timed, clock)


def skip_lapse_check(*_: object) -> None: ...


class TestApprovalsUnderAnOlderKey:
    """Approvals from before a key rotation count, and forged ones do not."""

    def _turned(
        self, directory: Path, before: Callable[[Harness, Run], None]
    ) -> tuple[Harness, Run]:
        """Ask, do something, change the key, and return what works with the new one."""
        url, key = f"sqlite:///{directory / 'keyturn.db'}", directory / "changelog.key"
        with open_harness(
            directory, database=Database(url, signing.load_signing_key(key))
        ) as harness:
            with harness.database.transaction() as tx:
                verification.open_log(tx)
            run = harness.request(LAMP_ON)
            before(harness, run)
            rotate_signing_key(harness.database, key)
        database = Database(url, signing.load_signing_key(key))
        with database.transaction() as tx:
            verification.open_log(tx)
        context = open_harness(directory, database=database)
        return context.__enter__(), run

    def test_pending_run_is_approved_and_succeeds_after_a_key_rotation(self, tmp_path: Path):
        harness, run = self._turned(tmp_path, lambda _harness, _run: None)
        assert harness.approve(run).state is State.SUCCEEDED
        harness.database.close()

    def test_approval_given_before_a_key_rotation_still_counts(self, tmp_path: Path):
        harness, run = self._turned(
            tmp_path,
            lambda harness, run: (
                harness.service.approve_run(run.id, person="olga", digest=run.digest) and None
            ),
        )
        harness.service.advancer.wake_stalled_runs()
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED
        harness.database.close()

    @pytest.mark.parametrize("signed", [False, True])
    def test_approval_forged_before_a_key_rotation_does_not_count(
        self, tmp_path: Path, signed: bool
    ):
        """Even by who has stolen the old key: the new one signed another root."""
        harness, run = self._turned(tmp_path, _append_sign_in_and_rotate_key)
        old = signing.load_signing_key(tmp_path / "stolen.key") if signed else None
        _overwrite_entry_with_approval(harness, run, old)
        harness.service.advancer.advance_run(run.id)
        ended = harness.get_run(run.id)
        assert (ended.state, harness.fleet.sent) == (State.QUEUED, [])
        assert "was altered" in str(harness.database.error)
        harness.database.close()

    def test_without_inclusion_an_approval_forged_before_a_key_rotation_counts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "list_vouched_entries", lambda _tx, entries: list(entries))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        monkeypatch.setattr(evidence, "follow_log", lambda _tx: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        harness, run = self._turned(tmp_path, _append_sign_in_and_rotate_key)
        _overwrite_entry_with_approval(harness, run, None)
        harness.service.advancer.advance_run(run.id)
        assert harness.fleet.sent == [("lb1", "set lamp on")]
        harness.database.close()

    def test_signing_key_of_a_broken_change_log_cannot_be_rotated(self, tmp_path: Path):
        def append_as_a_thief(harness: Harness, _run: Run) -> None:
            with harness.database.transaction() as tx:
                mine, tx._signing_key = tx._signing_key, SigningKey.create()  # pyright: ignore[reportPrivateUsage]
                change_log.append_entry(tx, UnknownEvent(kind="approved"), run=1, person="olga")
                tx._signing_key = mine  # pyright: ignore[reportPrivateUsage]

        with pytest.raises(KeyFileError, match="so its key cannot be changed"):
            self._turned(tmp_path, append_as_a_thief)


def _append_sign_in_and_rotate_key(harness: Harness, _run: Run) -> None:
    """Leave an entry that a forger can write over, and a copy of the key for a thief."""
    with harness.database.transaction() as tx:
        change_log.append_entry(
            tx, UnknownEvent(kind="signed in", facts={"source": "web"}), person="olga"
        )
    key = next(Path(harness.policies.path).parent.glob("changelog.key"))
    stolen = key.with_name("stolen.key")
    stolen.write_bytes(key.read_bytes())
    stolen.chmod(0o600)


def _overwrite_entry_with_approval(harness: Harness, run: Run, key: SigningKey | None) -> None:
    """Turn the entry of the sign-in into an approval, and cast the vote.

    key: signs all checkpoints again. Without it, they stay as they are.
    """
    whole = entries_of(harness.database)
    n = next(n for n, entry in enumerate(whole) if entry.kind == "signed in")
    body = change_log.encode_canonical(events.Approved(digest=run.digest).encode())
    was = whole[n]
    whole[n] = Entry(was.seq, was.at, "approved", run.id, "olga", run.host, body, "")
    rewrite(harness.database, rehash(whole), key)
    with harness.database.transaction() as tx:
        runs.add_decision(tx, runs.Decision(run.id, "olga", True, run.digest, tx.now))
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(state="queued"))
