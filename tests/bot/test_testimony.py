"""Whoever writes to the database behind Keyturn's back opens nothing: the signed log decides."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import delete, insert, text, update

from bot.run import Run, State, Vote
from bot.store import changelog, runs, tables, testimony
from bot.store.changelog import Entry
from bot.store.database import Transaction
from bot.store.seal import Seal
from tests.bot.office import Office
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")

Forgery = Callable[[Transaction, Run], None]


def _vote(tx: Transaction, run: Run) -> None:
    """Forge a key of an owner and let the run go."""
    runs.cast(tx, Vote(run.id, "olga", True, run.digest, tx.now))
    _ready(tx, run)


def _ready(tx: Transaction, run: Run) -> None:
    tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(state="ready"))


def _vote_with_an_entry_of_its_own(tx: Transaction, run: Run) -> None:
    """Forge the entry too, with another key than the log's."""
    _vote(tx, run)
    _append(tx, Seal.new(), run, "olga")


def _append(tx: Transaction, seal: Seal, run: Run, person: str) -> Entry:
    mine, tx._seal = tx._seal, seal  # pyright: ignore[reportPrivateUsage] - a forger's key
    entry = changelog.append(
        tx, "approved", run=run.id, person=person, digest=run.digest, why="", factor=""
    )
    tx._seal = mine  # pyright: ignore[reportPrivateUsage]
    return entry


def _vote_with_somebody_elses_entry(tx: Transaction, run: Run) -> None:
    """Bend a true entry of another run to this one."""
    _vote(tx, run)
    other = runs.get(tx, run.id)
    true = _append(tx, tx.seal, replace(other, id=run.id + 1), "olga")
    tx.sql.execute(text("DROP TRIGGER entry_no_update"))
    tx.sql.execute(update(tables.entry).where(tables.entry.c.seq == true.seq).values(run=run.id))


def _another_asker(tx: Transaction, run: Run) -> None:
    """Make it the request of an owner, who needs no key for it."""
    assert run.proposal
    plan = replace(run.proposal, asked_by="olga")
    tx.sql.execute(
        update(tables.run)
        .where(tables.run.c.id == run.id)
        .values(asked_by="olga", proposal=plan.to_json(), digest=plan.digest, terms="{}")
    )
    _ready(tx, run)


def _another_plan(tx: Transaction, run: Run) -> None:
    """Write a plan of one's own with a digest that fits, and an old key for it."""
    assert run.proposal
    plan = replace(run.proposal, because="it must be", expires=run.proposal.expires + 1)
    runs.cast(tx, Vote(run.id, "olga", True, plan.digest, tx.now))
    tx.sql.execute(
        update(tables.run)
        .where(tables.run.c.id == run.id)
        .values(proposal=plan.to_json(), digest=plan.digest, expires=plan.expires, state="ready")
    )


@pytest.mark.parametrize(
    "forge",
    [
        _vote,
        _vote_with_an_entry_of_its_own,
        _vote_with_somebody_elses_entry,
        _another_asker,
        _another_plan,
    ],
)
class TestForged:
    def test_t_a7_opens_nothing(self, office: Office, forge: Forgery):
        run = office.ask(LAMP_ON)
        with office.database.transaction() as tx:
            forge(tx, run)
        office.workflow.advance(run.id)
        ended = office.run(run.id)
        assert office.fleet.told == []
        assert ended.state is State.REFUSED
        assert "The change log does not bear out" in ended.summary

    def test_t_a7_without_the_comparison_it_would(
        self, office: Office, forge: Forgery, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(testimony, "against", _nothing)
        run = office.ask(LAMP_ON)
        with office.database.transaction() as tx:
            forge(tx, run)
        office.workflow.advance(run.id)
        assert office.fleet.told == [("lb1", "set lamp on")]


def _nothing(_tx: Transaction, _run: Run) -> str:
    return ""


class TestSetBack:
    """What has ended, or has begun, is not had again by setting its row back."""

    def _again(self, office: Office, run: Run) -> Run:
        office.fleet.hosts["lb1"]["lamp"] = "off"
        with office.database.transaction() as tx:
            tx.sql.execute(delete(tables.step).where(tables.step.c.run == run.id))
            tx.sql.execute(
                delete(tables.vote).where(tables.vote.c.run == run.id, ~tables.vote.c.yes)
            )
            _ready(tx, run)
        office.workflow.advance(run.id)
        return office.run(run.id)

    def test_a_run_that_succeeded(self, office: Office):
        done = office.approve(office.ask(LAMP_ON))
        again = self._again(office, done)
        assert again.state is State.REFUSED
        assert len(office.fleet.told) == 1

    def test_without_the_comparison_it_would_be_done_again(
        self, office: Office, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(testimony, "against", _nothing)
        done = office.approve(office.ask(LAMP_ON))
        # The host itself would not begin a step twice, either, for as long as it remembers.
        office.fleet.markers.clear()
        self._again(office, done)
        assert len(office.fleet.told) == 2

    def test_a_run_that_was_denied(self, office: Office):
        run = office.ask(LAMP_ON)
        office.workflow.deny(run.id, person="olga", reason="not today")
        with office.database.transaction() as tx:
            tx.sql.execute(delete(tables.vote))
            tx.sql.execute(
                insert(tables.vote).values(
                    run=run.id,
                    person="adam",
                    yes=True,
                    digest=run.digest,
                    at=tx.now,
                    reason="",
                    instead_of="",
                    factor="",
                )
            )
        assert self._again(office, run).state is State.REFUSED
        assert office.fleet.told == []

    def test_a_run_that_is_under_way(self, office: Office):
        def set_back(_host: str, _words: str) -> None:
            office.fleet.before_tell = lambda _host, _words: None
            with office.database.transaction() as tx:
                tx.sql.execute(delete(tables.step))
                tx.sql.execute(delete(tables.target_lock))
                _ready(tx, run)
            office.workflow.advance(run.id)

        office.fleet.before_tell = set_back
        run = office.ask(LAMP_ON)
        office.approve(run)
        assert len(office.fleet.told) == 1


def test_an_honest_run_is_borne_out(office: Office):
    run = office.ask(LAMP_ON)
    office.workflow.approve(run.id, person="olga", digest=run.digest)
    with office.database.transaction() as tx:
        assert testimony.against(tx, runs.get(tx, run.id)) == ""
