"""Rows forged in the database do not approve, start or repeat a run: the signed log decides."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, text, update

from bot.audit import change_log, events, evidence
from bot.audit.change_log import Entry, EntryDraft, LogAlteredError
from bot.audit.event_type import Event, UnknownEvent
from bot.audit.inclusion import list_vouched_entries
from bot.db import runs, tables
from bot.db.database import Transaction
from bot.db.lease_keeper import LeaseKeeper
from bot.execution import gate
from bot.model.run import Decision, Run, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.signing import SigningKey
from bot.service import KeyturnService
from tests.bot.clock import Clock
from tests.bot.db.test_delegations import delegate
from tests.bot.harness import Harness, open_harness
from tests.bot.rewritten_log import forge_entries, trust_the_database
from tests.policies import get_starter_rules
from tests.toy import SetAll, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
ESCALATING = (
    get_starter_rules().replace(
        '@from("owners")', '@from("owners") @escalate("role:administrator")'
    )
    + """
@id("administrators approve after escalation")
permit (principal in Role::"administrator", action == Action::"approve", resource)
when { context.escalated };
"""
)

Forgery = Callable[[Transaction, Run], None]


def _forge_decision_and_queue_run(tx: Transaction, run: Run) -> None:
    """Forge a key of an owner and let the run go."""
    runs.add_decision(tx, Decision(run.id, "olga", True, run.digest, tx.now))
    _queue_run(tx, run)


def _queue_run(tx: Transaction, run: Run) -> None:
    tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(state="queued"))


def _forge_decision_and_entry(tx: Transaction, run: Run) -> None:
    """Forge the entry too, with another key than the log's."""
    _forge_decision_and_queue_run(tx, run)
    forge_entries(tx, EntryDraft(_build_approval(run), run.id, "olga"))


def _build_approval(run: Run) -> events.Approved:
    return events.Approved(digest=run.digest, reason="", factor="")


def _reuse_entry_of_another_run(tx: Transaction, run: Run) -> None:
    """Bend a true entry of another run to this one."""
    _forge_decision_and_queue_run(tx, run)
    other = runs.get_run(tx, run.id)
    true = change_log.append_entry(
        tx, _build_approval(other), run=replace(other, id=run.id + 1), person="olga"
    )
    # Not the last one: nothing at all goes on where the log does not end as Keyturn left it.
    change_log.append_entry(tx, UnknownEvent(kind="noted"))
    tx.sql.execute(text("DROP TRIGGER entry_no_update"))
    tx.sql.execute(update(tables.entry).where(tables.entry.c.seq == true.seq).values(run=run.id))


def _change_requester(tx: Transaction, run: Run) -> None:
    """Make it the request of an owner, who needs no key for it."""
    assert run.plan
    plan = replace(run.plan, requested_by="olga")
    tx.sql.execute(
        update(tables.run)
        .where(tables.run.c.id == run.id)
        .values(requested_by="olga", plan=plan.to_json(), digest=plan.digest, requirements="{}")
    )
    _queue_run(tx, run)


def _replace_plan(tx: Transaction, run: Run) -> None:
    """Write a plan of one's own with a digest that fits, and an old key for it."""
    assert run.plan
    plan = replace(run.plan, current_state="it must be", expires_at=run.plan.expires_at + 1)
    runs.add_decision(tx, Decision(run.id, "olga", True, plan.digest, tx.now))
    tx.sql.execute(
        update(tables.run)
        .where(tables.run.c.id == run.id)
        .values(
            plan=plan.to_json(), digest=plan.digest, expires_at=plan.expires_at, state="queued"
        )
    )


FORGERIES = [
    _forge_decision_and_queue_run,
    _forge_decision_and_entry,
    _reuse_entry_of_another_run,
    _change_requester,
    _replace_plan,
]


@pytest.mark.parametrize("forge", FORGERIES)
class TestForgedApprovals:
    def test_forged_approval_rows_do_not_start_a_run(self, harness: Harness, forge: Forgery):
        run = harness.request(LAMP_ON)
        with harness.database.transaction() as tx:
            forge(tx, run)
        harness.service.advancer.advance_run(run.id)
        ended = harness.get_run(run.id)
        assert harness.fleet.sent == []
        if forge in {_reuse_entry_of_another_run, _forge_decision_and_entry}:
            # The log is not whole any more: nothing at all goes on.
            assert (ended.state, "was altered" in str(harness.database.error)) == (
                State.QUEUED,
                True,
            )
            return
        assert ended.state is State.REFUSED
        assert "The change log does not confirm" in ended.summary

    def test_without_the_evidence_check_forged_rows_approve_a_run(
        self, harness: Harness, forge: Forgery, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_run", _find_nothing)
        monkeypatch.setattr(evidence, "follow_log", lambda _tx: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        run = harness.request(LAMP_ON)
        with harness.database.transaction() as tx:
            forge(tx, run)
        monkeypatch.setattr(change_log, "_verify_newest", trust_the_database)
        harness.service.advancer.advance_run(run.id)
        assert harness.fleet.sent == [("lb1", "set lamp on")]


def _find_nothing(_tx: Transaction, _run: Run) -> str:
    return ""


def _alter_run(harness: Harness, run: Run, **values: object) -> None:
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(**values))


class TestAlteredRunColumns:
    """No altered column of a run's row lets it start with fewer approvals."""

    def _called_a_check(self, harness: Harness) -> Run:
        """Anyone may look, so a change that is called a check would take nobody's approval."""
        run = harness.request(LAMP_ON)
        _alter_run(harness, run, kind="check", state="queued", requirements="{}")
        harness.service.advancer.advance_run(run.id)
        return harness.get_run(run.id)

    def test_change_relabelled_as_a_check_is_refused_at_the_gate(self, harness: Harness):
        ended = self._called_a_check(harness)
        assert (ended.state, harness.fleet.sent) == (State.REFUSED, [])
        assert "does not confirm that toy set is a check" in ended.summary

    def test_without_the_kind_of_the_runbook_a_relabelled_change_runs(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "get_kind", lambda _runbook: "check")  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        assert self._called_a_check(harness).state is State.SUCCEEDED

    def _called_escalated(self, directory: Path) -> Harness:
        """Let an administrator decide who would be asked only once the owners had not."""
        with open_harness(directory, rules=ESCALATING) as harness:
            run = harness.request(LAMP_ON)
            _alter_run(harness, run, escalated_at=1, requirements="{}")
            harness.approve(harness.get_run(run.id), "stan")
            return harness

    def test_approval_after_a_forged_escalation_does_not_count(self, tmp_path: Path):
        assert self._called_escalated(tmp_path).fleet.sent == []

    def test_without_the_evidence_check_a_forged_escalation_lets_the_group_approve(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_run", _find_nothing)
        assert self._called_escalated(tmp_path).fleet.sent == [("lb1", "set lamp on")]

    def _after_its_end(self, directory: Path) -> Run:
        """Give an approval that was not used in time more of it."""
        clock = Clock(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create())
        with open_harness(directory, database=clock) as harness:
            run = harness.request(LAMP_ON)
            harness.service.approve_run(run.id, person="olga", digest=run.digest)
            _alter_run(harness, run, expires_at=2**60)
            clock.ahead = harness.context.approval_timeout + harness.context.start_timeout
            harness.run_queued_work()
            return harness.get_run(run.id)

    def test_approval_expires_at_the_time_in_the_plan_although_the_row_was_altered(
        self, tmp_path: Path
    ):
        assert self._after_its_end(tmp_path).state is State.EXPIRED

    def test_without_the_start_timeout_check_an_altered_expiry_starts_the_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "_check_is_in_time", lambda _tx, _run: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        assert self._after_its_end(tmp_path).state is State.SUCCEEDED


class TestAlteredEditors:
    """The person who chose the values cannot approve them, whatever the run's row says."""

    def _approved(self, harness: Harness, editors: str) -> Run:
        """Stan edits in Olga's stead; Olga approves what the row says that she has no part in."""
        delegate(harness, "olga", "stan")
        run = harness.request(LAMP_ON)
        new = harness.service.propose_values(
            run.id, person="stan", changed_values={"value": "dim"}
        )
        harness.run_queued_work()
        offered = harness.get_run(new.id)
        assert offered.editors == ("stan", "olga")
        harness.service.accept_proposal(offered.id, person="dora", digest=offered.digest)
        _alter_run(harness, offered, editors=editors)
        return harness.approve(harness.get_run(offered.id), "olga")

    @pytest.mark.parametrize("editors", ["[]", '["stan"]', '["adam"]'])
    def test_run_is_refused_when_its_editors_were_altered(self, harness: Harness, editors: str):
        ended = self._approved(harness, editors)
        assert (ended.state, harness.fleet.sent) == (State.REFUSED, [])
        assert "does not confirm that dora requested this" in ended.summary

    @pytest.mark.parametrize("editors", ["[]", '["stan"]', '["adam"]'])
    def test_without_the_evidence_check_an_editor_approves_their_own_values(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch, editors: str
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_run", _find_nothing)
        assert self._approved(harness, editors).state is State.SUCCEEDED

    def test_evidence_check_confirms_an_unaltered_counter_proposal(self, harness: Harness):
        run = harness.request(LAMP_ON)
        new = harness.service.propose_values(
            run.id, person="olga", changed_values={"value": "dim"}
        )
        harness.run_queued_work()
        offered = harness.get_run(new.id)
        harness.service.accept_proposal(offered.id, person="dora", digest=offered.digest)
        assert harness.approve(offered, "adam").state is State.SUCCEEDED


class TestMissingFacts:
    """A signed log entry that lacks a fact, or has another one."""

    @pytest.mark.parametrize("name", ["runbook", "source", "digest", "factor"])
    def test_run_is_refused_when_a_log_entry_lacks_a_fact(
        self, harness: Harness, name: str, monkeypatch: pytest.MonkeyPatch
    ):
        append = change_log.append_entry

        def without(tx: Transaction, event: Event, **place: Any) -> Entry:
            facts = {fact: value for fact, value in event.encode().items() if fact != name}
            return append(tx, UnknownEvent(kind=event.kind, facts=facts), **place)

        monkeypatch.setattr(change_log, "append_entry", without)
        ended = harness.approve(harness.request(LAMP_ON))
        # Who approved without a second factor is told of by an entry that names none, too.
        assert (ended.state is State.SUCCEEDED) == (name == "factor")
        assert name == "factor" or "The change log does not confirm" in ended.summary

    @pytest.mark.parametrize(
        "facts",
        [{"undo_of": 99}, {"schedule": 99}, {"hosts": ("lb2",)}, {"editors": ("olga",)}, {}],
    )
    def test_run_is_refused_when_the_entry_of_its_request_has_another_fact(
        self, harness: Harness, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ):
        append = change_log.append_entry

        def amended(tx: Transaction, event: Event, **place: Any) -> Entry:
            is_request = isinstance(event, events.Requested)
            return append(tx, replace(event, **facts) if is_request else event, **place)

        monkeypatch.setattr(change_log, "append_entry", amended)
        ended = harness.approve(harness.request(LAMP_ON))
        assert (ended.state is State.SUCCEEDED) == (not facts)
        assert not facts or "The change log does not confirm" in ended.summary

    @pytest.mark.parametrize("body", ["", "[1]", "7", "no JSON"])
    def test_facts_of_an_entry_without_a_json_object_are_empty(self, body: str):
        assert Entry(1, 1, "requested", 1, "dora", "lb1", body, "").facts == {}

    @pytest.mark.parametrize("member", ["person", "body", "hash"])
    def test_entry_that_is_not_text_is_not_evidence(self, harness: Harness, member: str):
        """SQLite keeps whatever it is given."""
        run = harness.request(LAMP_ON)
        with harness.database.transaction() as tx:
            tx.sql.execute(text("DROP TRIGGER entry_no_update"))
            tx.sql.execute(text(f"UPDATE entry SET {member} = x'00ff' || {member}"))  # noqa: S608 - ours
            tx.sql.execute(text(f"UPDATE entry SET {member} = CAST({member} AS BLOB)"))  # noqa: S608 - ours
            assert list_vouched_entries(tx, change_log.list_entries_of_run(tx, run.id)) == []
        with harness.database.transaction() as tx, pytest.raises(LogAlteredError):
            evidence.find_mismatch_of_run(tx, run)


class TestAlteredRunningRuns:
    """Nothing is sent for a run that is running only according to its row."""

    def _begun(self, harness: Harness, run: Run, *, steps: int) -> None:
        with harness.database.transaction() as tx:
            tx.sql.execute(
                insert(tables.lease).values(run=run.id, fence=1, worker="", expires_at=0)
            )
            for n in range(1, steps + 1):
                done = {"state": "succeeded", "sent_at": tx.now, "ended_at": tx.now, "error": ""}
                tx.sql.execute(insert(tables.step).values(run=run.id, step_number=n, **done))
        _alter_run(harness, run, state="running", started_at=1)
        harness.service.advancer.advance_run(run.id)

    def test_run_altered_to_running_is_not_sent_its_first_step(self, harness: Harness):
        """Whoever has a run between two steps goes on, and there nobody has approved it."""
        run = harness.request(LAMP_ON)
        self._begun(harness, run, steps=0)
        assert (harness.fleet.sent, harness.get_run(run.id).state) == ([], State.RUNNING)

    def _second(self, harness: Harness) -> None:
        run = harness.request(SetAll(host="lb1", value="on"))
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        self._begun(harness, run, steps=1)

    def test_forged_first_step_does_not_let_the_second_step_be_sent(self, harness: Harness):
        self._second(harness)
        assert harness.fleet.sent == []

    def test_without_the_evidence_check_the_second_step_is_sent_first(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_run", _find_nothing)
        monkeypatch.setattr(evidence, "find_mismatch_of_steps", _find_nothing)
        self._second(harness)
        assert harness.fleet.sent == [("lb1", "set lamp on")]

    def _stopped(self, harness: Harness) -> int:
        """Take back behind the log's back that somebody stops a run; return how far it comes."""

        def stop(_host: str, _words: str) -> None:
            harness.fleet.before_send = lambda _host, _words: None
            harness.service.stop_run(run.id, person="olga", reason="no more")
            with harness.database.transaction() as tx:
                tx.sql.execute(delete(tables.stop))

        run = harness.request(SetAll(host="lb1", value="on"))
        harness.fleet.before_send = stop
        harness.approve(run)
        return len(harness.fleet.sent)

    def test_stopped_run_stays_stopped_when_its_stop_is_removed(self, harness: Harness):
        assert self._stopped(harness) == 1

    def test_without_the_evidence_check_a_stopped_run_continues(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_run", _find_nothing)
        assert self._stopped(harness) == 2


def _mark_second_step_done(tx: Transaction, run: Run) -> None:
    """Write that the second step was done, too."""
    tx.sql.execute(
        insert(tables.step).values(
            run=run.id, step_number=2, state="succeeded", sent_at=tx.now, ended_at=tx.now, error=""
        )
    )


def _mark_first_step_not_done(tx: Transaction, run: Run) -> None:
    """Call the step that was done the second, so that it would be done again."""
    here = tables.step.c.run == run.id
    tx.sql.execute(update(tables.step).where(here).values(step_number=2))


@pytest.mark.parametrize("forge", [_mark_second_step_done, _mark_first_step_not_done])
class TestAlteredStepsBetweenWorkers:
    """Steps are altered after one worker gave up the run, before another takes it."""

    def _forge_while_running(self, harness: Harness, forge: Forgery) -> list[str]:
        run = harness.request(SetAll(host="lb1", value="on"))
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.fleet.after_send = lambda _host, _words: harness.service.close()
        harness.service.advancer.advance_run(run.id)
        with harness.database.transaction() as tx:
            forge(tx, run)
        other = KeyturnService(replace(harness.context, lease_keeper=LeaseKeeper()))
        other.advancer.advance_run(run.id)
        # What is found once may live and say so a moment later.
        other.advancer.recover_expired_leases()
        other.advancer.recover_expired_leases()
        self.ended = harness.get_run(run.id)
        return [words for _, words in harness.fleet.sent]

    def test_run_with_altered_steps_is_not_resumed_by_another_worker(
        self, db_harness: Harness, forge: Forgery
    ):
        assert self._forge_while_running(db_harness, forge) == ["set fan on"]
        assert self.ended.state is State.UNKNOWN
        assert "The change log does not confirm which of its steps were done" in self.ended.summary

    def test_without_the_evidence_check_a_step_is_skipped_or_repeated(
        self, db_harness: Harness, forge: Forgery, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_steps", _find_nothing)
        self._forge_while_running(db_harness, forge)
        assert self.ended.state is not State.UNKNOWN


class TestRunsSetBackToQueued:
    """A started or ended run does not run again when its row is set back."""

    def _again(self, harness: Harness, run: Run) -> Run:
        harness.fleet.hosts["lb1"]["lamp"] = "off"
        with harness.database.transaction() as tx:
            tx.sql.execute(delete(tables.step).where(tables.step.c.run == run.id))
            tx.sql.execute(
                delete(tables.decision).where(
                    tables.decision.c.run == run.id, ~tables.decision.c.approves
                )
            )
            _queue_run(tx, run)
        harness.service.advancer.advance_run(run.id)
        return harness.get_run(run.id)

    def test_succeeded_run_set_back_to_queued_is_refused(self, harness: Harness):
        done = harness.approve(harness.request(LAMP_ON))
        again = self._again(harness, done)
        assert again.state is State.REFUSED
        assert len(harness.fleet.sent) == 1

    def test_without_the_evidence_check_a_succeeded_run_is_sent_again(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_run", _find_nothing)
        done = harness.approve(harness.request(LAMP_ON))
        # The host itself would not begin a step twice, either, for as long as it remembers.
        harness.fleet.markers.clear()
        self._again(harness, done)
        assert len(harness.fleet.sent) == 2

    def test_denied_run_set_back_to_queued_is_refused(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.deny_run(run.id, person="olga", reason="not today")
        with harness.database.transaction() as tx:
            tx.sql.execute(delete(tables.decision))
            tx.sql.execute(
                insert(tables.decision).values(
                    run=run.id,
                    person="adam",
                    approves=True,
                    digest=run.digest,
                    decided_at=tx.now,
                    reason="",
                    on_behalf_of="",
                    factor="",
                    signature="",
                )
            )
        assert self._again(harness, run).state is State.REFUSED
        assert harness.fleet.sent == []

    def test_running_run_set_back_to_queued_sends_its_step_once(self, harness: Harness):
        def set_back(_host: str, _words: str) -> None:
            harness.fleet.before_send = lambda _host, _words: None
            with harness.database.transaction() as tx:
                tx.sql.execute(delete(tables.step))
                tx.sql.execute(delete(tables.host_lock))
                _queue_run(tx, run)
            harness.service.advancer.advance_run(run.id)

        harness.fleet.before_send = set_back
        run = harness.request(LAMP_ON)
        harness.approve(run)
        assert len(harness.fleet.sent) == 1


def test_evidence_check_confirms_an_unaltered_run(harness: Harness):
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    with harness.database.transaction() as tx:
        assert evidence.find_mismatch_of_run(tx, runs.get_run(tx, run.id)) == ""
