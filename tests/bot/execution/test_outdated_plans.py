"""Plans under an earlier policy: they cannot be approved, and end as stale."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.errors import NotAllowed, TooLate
from bot.model.run import RequestTerms, Run, State
from bot.policy import PolicyDirectory
from bot.policy.freezes import FreezeList
from bot.service import KeyturnService
from bot.workflow import approvals
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.harness import WEB, Harness
from tests.policies import write_policy
from tests.toy import BreakSwitch, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
ANEW = (
    "After the plan was made, the policy was changed. Nothing was sent. "
    "Re-plan it to get a new plan."
)


def _set_lamp(host: str) -> SetSwitch:
    return SetSwitch(host=host, name="lamp", value="on")


def change_rules(policy: PolicyDirectory) -> None:
    """Change the rules that apply to requests."""
    rules = policy.path / "policy.cedar"
    changed = re.sub(
        r"(an owner of the area approves it|need a second person)\.",
        r"\1, always.",
        rules.read_text(),
    )
    assert changed != rules.read_text()
    rules.write_text(changed)


def _add_policy_comment(policy: PolicyDirectory) -> None:
    """Change the policy in what makes no difference to any request."""
    rules = policy.path / "policy.cedar"
    rules.write_text(f"{rules.read_text()}\n// a remark\n")


def end_outdated_plans(harness: Harness) -> list[Run]:
    """Do as the clock does every few seconds."""
    harness.service.advancer.record_policy_change()
    return harness.service.advancer.end_outdated_plans()


def _never(*_: object) -> bool:
    return False


class TestApprovalUnderEarlierPolicy:
    def test_approval_of_a_plan_under_an_earlier_policy_is_rejected(self, db_harness: Harness):
        harness = db_harness
        run = harness.request(LAMP_ON)
        change_rules(harness.policies)
        with pytest.raises(TooLate, match=r"under an earlier policy.*can re-plan it"):
            harness.approve(run)
        with harness.database.reading() as tx:
            assert runs.list_decisions(tx, run.id) == []
        assert "approved" not in harness.list_entry_kinds(run)
        assert harness.get_run(run.id).state is State.PENDING

    def test_without_the_outdated_check_an_approved_run_ends_stale(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        run = harness.request(LAMP_ON)
        change_rules(harness.policies)
        monkeypatch.setattr(approvals, "is_plan_outdated", _never)
        ended = harness.approve(run)
        assert (ended.state, ended.summary) == (State.STALE, ANEW)
        assert "approved" in harness.list_entry_kinds(run)

    def test_second_approval_of_a_plan_under_an_earlier_policy_is_rejected(self, harness: Harness):
        rules = harness.policies.path / "policy.cedar"
        rules.write_text(rules.read_text().replace('@approvals("1")', '@approvals("2")'))
        run = harness.request(LAMP_ON)
        assert harness.approve(run, "olga").state is State.PENDING
        change_rules(harness.policies)
        with pytest.raises(TooLate, match="can re-plan it"):
            harness.approve(run, "adam")

    def test_approval_of_an_outdated_plan_by_a_non_approver_is_refused_as_such(
        self, harness: Harness
    ):
        run = harness.request(LAMP_ON)
        change_rules(harness.policies)
        with pytest.raises(NotAllowed, match="Those who can"):
            harness.approve(run, "stan")
        assert harness.list_entry_kinds(run)[-1] == "approval refused"

    def test_approval_counts_again_when_the_policy_is_restored(self, harness: Harness):
        run = harness.request(LAMP_ON)
        rules = harness.policies.path / "policy.cedar"
        shown = rules.read_text()
        change_rules(harness.policies)
        rules.write_text(shown)
        assert harness.approve(run).state is State.SUCCEEDED

    def test_denial_counts_although_the_policy_changed(self, harness: Harness):
        run = harness.request(LAMP_ON)
        change_rules(harness.policies)
        assert harness.service.deny_run(run.id, person="olga", reason="no").state is State.DENIED


class TestPolicyChangeWithoutEffect:
    """A change that makes no difference to a request leaves it, and its approvals, as they are."""

    def test_policy_change_without_effect_leaves_a_request_pending(self, db_harness: Harness):
        harness = db_harness
        run = harness.request(LAMP_ON)
        harness.service.advancer.record_policy_change()
        _add_policy_comment(harness.policies)
        assert end_outdated_plans(harness) == []
        assert harness.get_run(run.id).state is State.PENDING
        done = harness.approve(run)
        assert (done.state, harness.fleet.sent) == (State.SUCCEEDED, [("lb1", "set lamp on")])

    def test_policy_change_without_effect_leaves_a_parent_run_pending(self, harness: Harness):
        harness.service.advancer.record_policy_change()
        both = [_set_lamp(host) for host in ("lb1", "lb2")]
        parent = harness.service.request_on_hosts(
            both, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()
        _add_policy_comment(harness.policies)
        assert end_outdated_plans(harness) == []
        assert harness.approve(harness.get_run(parent.id)).state is State.SUCCEEDED

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [
            ("inventory.yaml", "lb1: {", "lb1: {port: 2222, "),
            ("policy.cedar", '@approvals("1")', '@approvals("2")'),
            ("policy.cedar", "an owner of the area approves it", "an owner approves it"),
        ],
    )
    def test_policy_change_that_affects_a_request_ends_it_as_stale(
        self, harness: Harness, file: str, old: str, new: str
    ):
        run = harness.request(LAMP_ON)
        harness.service.advancer.record_policy_change()
        path = harness.policies.path / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        assert [ended.id for ended in end_outdated_plans(harness)] == [run.id]


class TestBreakGlassUnderEarlierPolicy:
    WHY = "all customers see an error page"

    def _break(self, harness: Harness) -> None:
        harness.fleet.hosts["web1"] = {"lamp": "off"}
        app = enrol_and_step_up(harness, "adam")
        run = harness.request(_set_lamp("web1"), person="adam", reason="the cellar is dark")
        change_rules(harness.policies)
        harness.service.break_glass.activate_break_glass(
            run.id, person="adam", session=app.session, digest=run.digest, reason=self.WHY
        )

    def test_break_glass_for_a_plan_under_an_earlier_policy_is_rejected(self, harness: Harness):
        with pytest.raises(TooLate, match="can re-plan it"):
            self._break(harness)
        assert "break-glass activated" not in harness.list_entry_kinds()

    def test_without_the_outdated_check_break_glass_is_activated(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(approvals, "is_plan_outdated", _never)
        self._break(harness)
        assert "break-glass activated" in harness.list_entry_kinds()
        harness.run_queued_work()
        assert harness.fleet.sent == []


class TestEndingOutdatedPlans:
    def test_pending_run_under_an_earlier_policy_ends_stale_and_is_announced(
        self, db_harness: Harness
    ):
        harness = db_harness
        harness.service.advancer.record_policy_change()
        run = harness.request(LAMP_ON)
        assert end_outdated_plans(harness) == []
        with harness.database.transaction() as tx:
            for item in outbox.lock_pending_updates(tx):
                outbox.mark_delivered(tx, item)
        change_rules(harness.policies)
        assert [ended.id for ended in end_outdated_plans(harness)] == [run.id]
        ended = harness.get_run(run.id)
        assert (ended.state, ended.summary) == (State.STALE, ANEW)
        assert harness.list_entry_kinds(run)[-1] == "stale"
        with harness.database.reading() as tx:
            assert [item.run for item in outbox.list_pending_updates(tx)] == [run.id]
        assert end_outdated_plans(harness) == []

    def test_pending_run_of_the_current_policy_is_not_ended(self, db_harness: Harness):
        harness = db_harness
        old = harness.request(LAMP_ON)
        harness.service.advancer.record_policy_change()
        change_rules(harness.policies)
        new = harness.request(_set_lamp("lb2"))
        assert [ended.id for ended in end_outdated_plans(harness)] == [old.id]
        assert harness.approve(harness.get_run(new.id)).state is State.SUCCEEDED

    def test_approved_run_on_hold_under_an_earlier_policy_ends_stale(self, harness: Harness):
        (harness.policies.path / "freezes.yaml").write_text(
            'freezes: [{name: fair, from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]\n'
        )
        run = harness.approve(harness.request(LAMP_ON))
        assert run.state is State.QUEUED
        change_rules(harness.policies)
        assert [ended.id for ended in end_outdated_plans(harness)] == [run.id]
        assert harness.get_run(run.id).state is State.STALE

    def test_approved_run_under_an_earlier_policy_ends_stale_after_the_freeze(
        self, harness: Harness
    ):
        (harness.policies.path / "freezes.yaml").write_text(
            'freezes: [{name: fair, from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]\n'
        )
        run = harness.approve(harness.request(LAMP_ON))
        change_rules(harness.policies)
        harness.policies.get_policy().freezes = FreezeList()
        harness.service.advancer.wake_stalled_runs()
        harness.run_queued_work()
        assert harness.get_run(run.id).summary == ANEW

    def test_parent_run_under_an_earlier_policy_ends_with_its_child_runs(
        self, db_harness: Harness
    ):
        harness = db_harness
        both = [_set_lamp(host) for host in ("lb1", "lb2")]
        whole = harness.service.request_on_hosts(
            both, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()
        change_rules(harness.policies)
        assert [ended.id for ended in end_outdated_plans(harness)] == [whole.id]
        with harness.database.reading() as tx:
            left = {part.state for part in runs.list_children(tx, whole.id)}
        assert left == {State.WITHDRAWN}

    def test_running_run_under_an_earlier_policy_is_not_ended(self, harness: Harness):
        seen: list[Run] = []

        def look(_host: str, _words: str) -> None:
            change_rules(harness.policies)
            seen.extend(end_outdated_plans(harness))

        harness.fleet.after_send = look
        assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED
        assert seen == []

    def test_pending_run_is_not_ended_while_the_policy_is_invalid(self, harness: Harness):
        run = harness.request(LAMP_ON)
        rules = harness.policies.path / "policy.cedar"
        rules.write_text("permit (")
        assert end_outdated_plans(harness) == []
        assert harness.get_run(run.id).state is State.PENDING


class TestSeveralProcesses:
    """Processes read a new policy one after the other; the log says which is newer."""

    def _two(self, harness: Harness, tmp_path: Path) -> tuple[Harness, Harness]:
        """Return one that has the new policy, and one that still has the old."""
        policies = write_policy(tmp_path / "later")
        behind = replace(harness.context, policies=policies)
        late = replace(harness, service=KeyturnService(behind), context=behind, policies=policies)
        end_outdated_plans(harness)
        end_outdated_plans(late)
        change_rules(harness.policies)
        return harness, late

    def test_process_with_the_old_policy_ends_no_run_of_the_new_policy(
        self, db_harness: Harness, tmp_path: Path
    ):
        new, late = self._two(db_harness, tmp_path)
        # Before the log tells of the new policy, and after.
        runs_of_new = [new.request(LAMP_ON)]
        assert end_outdated_plans(late) == []
        end_outdated_plans(new)
        runs_of_new.append(new.request(BreakSwitch(host="lb2", name="lamp")))
        assert end_outdated_plans(late) == []
        assert {new.get_run(run.id).state for run in runs_of_new} == {State.PENDING}
        # Nor is a key turned there: its gate would turn the plan away.
        with pytest.raises(TooLate, match="earlier policy"):
            late.approve(runs_of_new[0])
        assert new.approve(runs_of_new[0]).state is State.SUCCEEDED

    def test_without_the_order_of_policies_a_run_of_the_new_policy_is_ended(
        self, db_harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        new, late = self._two(db_harness, tmp_path)
        run = new.request(LAMP_ON)
        search = runs.list_planned_under_other_policies

        def whenever(tx: Transaction, version: str, *, before: int) -> list[int]:
            return search(tx, version, before=before + 3600 * 1_000_000)

        monkeypatch.setattr(runs, "list_planned_under_other_policies", whenever)
        assert [ended.id for ended in end_outdated_plans(late)] == [run.id]

    def test_policy_logged_last_ends_runs_of_other_policies(
        self, db_harness: Harness, tmp_path: Path
    ):
        new, late = self._two(db_harness, tmp_path)
        run = new.request(LAMP_ON)
        end_outdated_plans(new)
        assert end_outdated_plans(late) == []
        # Who has just started writes down what it finds.
        assert [
            ended.id
            for ended in end_outdated_plans(replace(late, service=KeyturnService(late.context)))
        ] == [run.id]

    def test_process_with_the_new_policy_ends_runs_of_the_old_policy(
        self, db_harness: Harness, tmp_path: Path
    ):
        new, late = self._two(db_harness, tmp_path)
        run = late.request(LAMP_ON)
        end_outdated_plans(new)
        assert new.get_run(run.id).state is State.STALE
