"""Schedules, broken glass and an older key: the signed log decides about these, too."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Table, update

from bot.audit import change_log, evidence, key_history, verification
from bot.audit.change_log import Entry
from bot.db import migrations, runs, schedules, tables
from bot.db.database import Database, Transaction
from bot.db.schedules import Schedule, ScheduleState
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model import signing
from bot.model.errors import NotAllowed
from bot.model.run import Run, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.signing import KeyFileError, SigningKey
from tests.bot.audit.test_verification import entries_of, rewrite
from tests.bot.keyring import an_app, stepped_up
from tests.bot.office import WEB, Office, an_office
from tests.bot.time import Clock, due_now, fire_all
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
DAY = 24 * 3_600_000_000
Forgery = Callable[[Transaction], None]
WHY = "all customers see an error page"


def nothing(*_: object) -> str:
    return ""


def amend(tx: Transaction, table: Table, **values: object) -> None:
    tx.sql.execute(update(table).values(**values))


def _active_again(tx: Transaction) -> None:
    amend(tx, tables.schedule, state=ScheduleState.ACTIVE.value, reason="")


def _another_lapse(tx: Transaction) -> None:
    change_log.append_entry(tx, "schedule resumed", run=1, schedule=1)
    amend(tx, tables.schedule, state="active", lapses_at=tables.schedule.c.lapses_at + DAY)


def _another_moment(tx: Transaction) -> None:
    change_log.append_entry(tx, "schedule resumed", run=1, schedule=1)
    often = ScheduleTiming("hourly", parse_cron("* * * * *", "Europe/Amsterdam"))
    amend(tx, tables.schedule, state="active", timing=often.to_json())


FORGERIES = (_active_again, _another_lapse, _another_moment)


@pytest.mark.parametrize("forge", FORGERIES)
class TestSchedules:
    """Somebody writes to the schedule's own row."""

    @staticmethod
    def _ended(office: Office) -> Schedule:
        """Return a schedule that was due just now when its owner ended it."""
        run = office.workflow.schedules.request_schedule(
            [LAMP_ON], host_pattern="", person="dora", origin=WEB, timing=HOURLY
        )
        office.work()
        office.approve(office.run(run.id))
        with office.database.reading() as tx:
            [schedule] = schedules.list_schedules(tx)
        due_now(office, schedule)
        office.workflow.schedules.end_schedule(schedule.id, person="dora")
        return schedule

    def test_a_schedule_does_not_fire_when_the_log_lacks_it(self, office: Office, forge: Forgery):
        self._ended(office)
        with office.database.transaction() as tx:
            forge(tx)
        fire_all(office)
        with office.database.reading() as tx:
            fired = schedules.get_last_run(tx, 1, host="")
        assert fired
        assert "The change log does not confirm" in office.run(fired).summary
        assert office.fleet.told == []

    def test_a_forged_schedule_would_fire_without_the_comparison(
        self, office: Office, forge: Forgery, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_fire", nothing)
        monkeypatch.setattr(evidence, "find_missing_entry_of_run", nothing)
        self._ended(office)
        with office.database.transaction() as tx:
            forge(tx)
        fire_all(office)
        assert office.fleet.told == [("lb1", "set lamp on")]


class TestGlass:
    """Somebody writes that glass was broken, or that others have reviewed it."""

    @pytest.fixture
    def clock(self, tmp_path: Path) -> Clock:
        clock = Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
        migrations.upgrade_schema(clock)
        return clock

    @pytest.fixture
    def timed(self, tmp_path: Path, clock: Clock) -> Generator[Office]:
        with an_office(tmp_path, database=clock) as office:
            office.fleet.hosts["web1"] = {"fan": "off", "lamp": "off"}
            yield office

    def _forged(self, office: Office) -> Run:
        """Let Adam's request look as if he had broken the glass for it."""
        app = an_app(office, "adam")
        wanted = SetSwitch(host="web1", name="lamp", value="on")
        run = office.ask(wanted, person="adam", reason="the cellar is dark")
        office.workflow.break_glass.request_break_glass(run.id, person="adam", reason=WHY)
        with office.database.transaction() as tx:
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
        office.workflow.advance_run(run.id)
        return office.run(run.id)

    def test_forged_break_glass_opens_nothing(self, timed: Office):
        assert self._forged(timed).state in {State.PENDING, State.REFUSED}
        assert timed.fleet.told == []

    def test_without_the_comparison_it_would(self, timed: Office, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(evidence, "find_mismatch_of_break_glass", nothing)
        assert self._forged(timed).state is State.SUCCEEDED

    def _again_after_a_day(self, office: Office, clock: Clock) -> None:
        """Break glass, write a review of it behind the log's back, and want to do it again."""
        app = stepped_up(office, "adam")
        for value in ("on", "dim"):
            wanted = SetSwitch(host="web1", name="lamp", value=value)
            run = office.ask(wanted, person="adam", reason="the cellar is dark")
            if value == "dim":
                office.workflow.break_glass.request_break_glass(run.id, person="adam", reason=WHY)
                continue
            office.workflow.break_glass.activate_break_glass(
                run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
            )
            office.work()
            clock.ahead += DAY + DAY // 24
            with office.database.transaction() as tx:
                amend(
                    tx,
                    tables.break_glass,
                    reviewed_at=tx.now,
                    reviewer="olga",
                    review="all is well",
                )

    def test_a_forged_review_is_none(self, timed: Office, clock: Clock):
        with pytest.raises(
            NotAllowed, match="your break-glass run 1 is older than a day and not reviewed"
        ):
            self._again_after_a_day(timed, clock)

    def test_without_the_log_the_table_would_be_believed(
        self, timed: Office, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "get_unreviewed_run", nothing_overdue)
        self._again_after_a_day(timed, clock)


def nothing_overdue(*_: object) -> None: ...


class TestAnOlderKey:
    """What waited while the log's key was changed goes on; nobody gains a key by that."""

    def _turned(
        self, directory: Path, before: Callable[[Office, Run], None]
    ) -> tuple[Office, Run]:
        """Ask, do something, change the key, and return what works with the new one."""
        url, key = f"sqlite:///{directory / 'keyturn.db'}", directory / "changelog.key"
        with an_office(directory, database=Database(url, signing.load_signing_key(key))) as office:
            with office.database.transaction() as tx:
                verification.open_log(tx)
            run = office.ask(LAMP_ON)
            before(office, run)
            rotate_signing_key(office.database, key)
        database = Database(url, signing.load_signing_key(key))
        context = an_office(directory, database=database)
        return context.__enter__(), run

    def test_a_request_that_waited_meanwhile_is_approved_and_done(self, tmp_path: Path):
        office, run = self._turned(tmp_path, lambda _office, _run: None)
        assert office.approve(run).state is State.SUCCEEDED
        office.database.close()

    def test_a_key_that_was_turned_before_still_opens(self, tmp_path: Path):
        office, run = self._turned(
            tmp_path,
            lambda office, run: (
                office.workflow.approve_run(run.id, person="olga", digest=run.digest) and None
            ),
        )
        office.workflow.wake_stalled_runs()
        office.work()
        assert office.run(run.id).state is State.SUCCEEDED
        office.database.close()

    def test_without_the_links_it_would_have_to_be_asked_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(key_history, "_list_linked_hashes", _none_of_them)
        office, run = self._turned(tmp_path, lambda _office, _run: None)
        assert office.approve(run).state is State.REFUSED
        office.database.close()

    @pytest.mark.parametrize("stolen", [False, True])
    def test_an_approval_written_in_before_the_change_opens_nothing(
        self, tmp_path: Path, stolen: bool
    ):
        """Even by who has stolen the old key: it does not lead up to what the new one signed."""
        office, run = self._turned(tmp_path, _sign_out_and_in)
        old = signing.load_signing_key(tmp_path / "stolen.key") if stolen else SigningKey.create()
        _write_in(office, run, old)
        office.workflow.advance_run(run.id)
        ended = office.run(run.id)
        assert (ended.state, office.fleet.told) == (State.QUEUED, [])
        assert "was altered" in office.database.error
        office.database.close()

    def test_without_the_links_it_would(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(key_history, "_list_linked_hashes", _all_of_them)
        monkeypatch.setattr(evidence, "follow_log", lambda _tx: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        office, run = self._turned(tmp_path, _sign_out_and_in)
        _write_in(office, run, signing.load_signing_key(tmp_path / "stolen.key"))
        office.workflow.advance_run(run.id)
        assert office.fleet.told == [("lb1", "set lamp on")]
        office.database.close()

    def test_what_our_key_signed_elsewhere_makes_no_other_key_ours(self, tmp_path: Path):
        """A change of keys that never was, with a signature of ours that is of another entry."""
        office, run = self._turned(tmp_path, _sign_out_and_in)
        thief = SigningKey.create()
        _write_in(office, run, thief)
        with office.database.transaction() as tx:
            last = change_log.list_newest_entries(tx, limit=1)[0]
            forged = change_log.append_entry(
                tx, change_log.KEY_KIND, public=tx.seal.public_key, proof=last.signature
            )
            assert forged.prev == last.hash
        office.workflow.advance_run(run.id)
        assert office.fleet.told == []
        office.database.close()

    def test_a_log_that_is_broken_is_not_vouched_for_by_another_key(self, tmp_path: Path):
        def append_as_a_thief(office: Office, _run: Run) -> None:
            with office.database.transaction() as tx:
                mine, tx._seal = tx._seal, SigningKey.create()  # pyright: ignore[reportPrivateUsage]
                change_log.append_entry(tx, "approved", run=1, person="olga")
                tx._seal = mine  # pyright: ignore[reportPrivateUsage]

        with pytest.raises(KeyFileError, match="so its key cannot be changed"):
            self._turned(tmp_path, append_as_a_thief)


def _all_of_them(_tx: Transaction, _key: str, entries: Sequence[Entry]) -> set[str]:
    return {entry.hash for entry in entries}


def _none_of_them(_tx: Transaction, _key: str, _entries: Sequence[Entry]) -> set[str]:
    return set()


def _sign_out_and_in(office: Office, _run: Run) -> None:
    """Leave an entry that a forger can write over, and a copy of the key for a thief."""
    with office.database.transaction() as tx:
        change_log.append_entry(tx, "signed in", person="olga", source="web")
    key = next(Path(office.policies.path).parent.glob("changelog.key"))
    stolen = key.with_name("stolen.key")
    stolen.write_bytes(key.read_bytes())
    stolen.chmod(0o600)


def _write_in(office: Office, run: Run, key: SigningKey) -> None:
    """Turn the entry of the sign-in into an approval, signed by the old key, and cast the vote."""
    whole = entries_of(office.database)
    n = next(n for n, entry in enumerate(whole) if entry.kind == "signed in")
    facts = {"digest": run.digest, "why": "", "factor": None, "on_behalf_of": None}
    body = change_log.encode_canonical(facts)
    was = whole[n]
    made = Entry(was.seq, was.at, "approved", run.id, "olga", run.host, body, was.prev, "", "")
    digest = change_log.hash_entry(tuple(vars(made).values()))
    whole[n] = Entry(*[*vars(made).values()][:-2], hash=digest, signature=key.sign_hash(digest))
    rewrite(office.database, whole)
    with office.database.transaction() as tx:
        runs.add_decision(tx, runs.Decision(run.id, "olga", True, run.digest, tx.now))
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(state="queued"))
