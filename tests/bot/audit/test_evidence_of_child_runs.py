"""The signed log decides about child runs, and about bans and stops."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select, update

from bot.audit import change_log, events, evidence, verification
from bot.audit.event_type import UnknownEvent
from bot.db import runs, tables
from bot.db.database import Database, Transaction
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model import signing
from bot.model.run import RequestTerms, Run, State
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.rewritten_log import forge_entries, trust_the_database
from tests.policies import INVENTORY
from tests.toy import SetSwitch

NAMES = [f"lb{n}" for n in range(1, 6)]
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")

Forgery = Callable[[Transaction, Run], int]


@pytest.fixture
def crowd(tmp_path: Path) -> Generator[Harness]:
    """A harness with five balancers, each with a lamp that is off."""
    with open_harness(tmp_path) as harness:
        more = "".join(f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in NAMES[2:])
        (harness.policies.path / "inventory.yaml").write_text(INVENTORY + more)
        harness.fleet.hosts = {name: {"lamp": "off"} for name in NAMES}
        yield harness


def _requeue_child_run(tx: Transaction, part: Run) -> int:
    """Let a part that has succeeded be ready once more."""
    tx.sql.execute(delete(tables.step).where(tables.step.c.run == part.id))
    tx.sql.execute(update(tables.run).where(tables.run.c.id == part.id).values(state="queued"))
    return part.id


def _duplicate_child_run(tx: Transaction, part: Run) -> int:
    """Write another part for the same host."""
    query = select(tables.run).where(tables.run.c.id == part.id)
    row = dict(tx.sql.execute(query).mappings().one())
    del row["id"]
    row |= {"state": "queued", "started_at": None, "ended_at": None}
    return tx.sql.execute(insert(tables.run).values(row).returning(tables.run.c.id)).scalar_one()


@pytest.mark.parametrize("forge", [_requeue_child_run, _duplicate_child_run])
class TestForgedChildRuns:
    """The first host's child run is set back or copied while the others are running."""

    def _forged(self, harness: Harness, forge: Forgery) -> int:
        """Return how often the first host is told."""
        requests = [SetSwitch(host=name, name="lamp", value="on") for name in NAMES]
        whole = harness.service.request_on_hosts(
            requests, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()

        def after(host: str, _words: str) -> None:
            if host != "lb3":
                return
            harness.fleet.hosts["lb1"]["lamp"] = "off"
            # The host itself would not begin a step twice, for as long as it remembers.
            harness.fleet.markers.clear()
            with harness.database.transaction() as tx:
                number = forge(tx, runs.list_children(tx, whole.id)[0])
            harness.service.advancer.advance_run(number)

        harness.fleet.after_send = after
        harness.approve(harness.get_run(whole.id))
        return [target for target, _ in harness.fleet.sent].count("lb1")

    def test_forged_child_run_sends_its_step_to_a_host_only_once(
        self, crowd: Harness, forge: Forgery
    ):
        assert self._forged(crowd, forge) == 1

    def test_without_the_evidence_check_a_forged_child_run_sends_a_step_twice(
        self, crowd: Harness, forge: Forgery, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_child", _find_nothing)
        assert self._forged(crowd, forge) == 2


def _find_nothing(*_: object) -> str:
    return ""


def _nobody(*_: object) -> frozenset[str]:
    return frozenset()


def _ban_requester_and_delete_ban(harness: Harness) -> None:
    harness.service.ban_person("dora", banned_by="adam", reason="left the company")
    with harness.database.transaction() as tx:
        tx.sql.execute(delete(tables.ban))


def _ban_approver_and_delete_ban(harness: Harness) -> None:
    harness.service.ban_person("olga", banned_by="adam", reason="left the company")
    with harness.database.transaction() as tx:
        tx.sql.execute(delete(tables.ban))


def _log_stop_without_row(harness: Harness) -> None:
    with harness.database.transaction() as tx:
        change_log.append_entry(tx, events.EverythingStopped(reason="all is dark"), person="adam")


def _forge_end_of_stop(harness: Harness) -> None:
    _log_stop_without_row(harness)
    with harness.database.transaction() as tx:
        resumed = UnknownEvent(kind="everything resumed", facts={"reason": "it is light"})
        forge_entries(tx, change_log.EntryDraft(resumed, None, "olga"))


@pytest.mark.parametrize(
    "forge",
    [
        _ban_requester_and_delete_ban,
        _ban_approver_and_delete_ban,
        _log_stop_without_row,
        _forge_end_of_stop,
    ],
)
class TestDeletedBansAndStops:
    """The row of a ban or stop is deleted, and its log entry stays."""

    def _goes_on(self, harness: Harness, forge: Callable[[Harness], None]) -> State:
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        forge(harness)
        harness.run_queued_work()
        return harness.get_run(run.id).state

    def test_a_ban_holds_when_its_row_is_deleted(
        self, harness: Harness, forge: Callable[[Harness], None]
    ):
        # A forged entry stops everything, not only this run.
        stopped = State.QUEUED if forge is _forge_end_of_stop else State.REFUSED
        assert self._goes_on(harness, forge) is stopped
        assert harness.fleet.sent == []

    def test_without_the_evidence_check_a_deleted_ban_lets_the_run_start(
        self,
        harness: Harness,
        forge: Callable[[Harness], None],
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setattr(evidence, "list_banned", _nobody)
        if forge is _forge_end_of_stop:
            monkeypatch.setattr(change_log, "_verify_newest", trust_the_database)
        assert self._goes_on(harness, forge) is State.SUCCEEDED


def _order_and_lift_bans_and_stops(harness: Harness) -> None:
    harness.service.ban_person("dora", banned_by="adam", reason="lost her telephone")
    harness.service.unban_person("dora", unbanned_by="olga", reason="has another one")
    harness.service.stop_everything(person="adam", reason="a drill")
    harness.service.resume_everything(person="olga", reason="it is over")


def test_lifted_ban_and_resumed_stop_do_not_block_a_run(harness: Harness):
    _order_and_lift_bans_and_stops(harness)
    assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED


def test_lifted_ban_and_stop_of_an_older_signing_key_do_not_block_a_run(tmp_path: Path):
    url, key = f"sqlite:///{tmp_path / 'keyturn.db'}", tmp_path / "changelog.key"
    with open_harness(tmp_path, database=Database(url, signing.load_signing_key(key))) as harness:
        with harness.database.transaction() as tx:
            verification.open_log(tx)
        _order_and_lift_bans_and_stops(harness)
        rotate_signing_key(harness.database, key)
    with open_harness(tmp_path, database=Database(url, signing.load_signing_key(key))) as harness:
        assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED
