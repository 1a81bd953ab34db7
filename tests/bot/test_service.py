"""One request from start to end: what is sent, what is not, and what is logged."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import ClassVar

import pytest
from sqlalchemy import insert

from bot.audit import change_log
from bot.db import locks, runs, tables
from bot.db.database import StoreUnavailable, Transaction
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestTerms, State, StepRecord, StepState
from bot.model.run_states import describe_outcome
from bot.policy.freezes import FreezeList
from bot.service import KeyturnService
from connectors.command import QueryRunner, Shell
from connectors.errors import CommandError, UnknownOutcomeError, UnreachableError
from runbooks import Change, Host, Plan, Step
from tests.bot.harness import WEB, Harness
from tests.policies import HOST_KEY
from tests.toy import SHOW, BreakSwitch, SetAll, SetSwitch, ShowSwitches, WarmUp

STEP_DONE = "step succeeded"
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def test_approved_change_is_sent_verified_and_logged(harness: Harness):
    asked = harness.request(LAMP_ON, person="dora", reason="the cellar is dark")
    assert (asked.state, asked.required_approvals, asked.approver_groups) == (
        State.PENDING,
        1,
        ("area:edge",),
    )
    assert harness.fleet.sent == []

    done = harness.approve(asked, person="olga")

    assert harness.fleet.sent == [("lb1", "set lamp on")]
    assert (done.state, done.summary) == (State.SUCCEEDED, "Verified: lamp is on")
    assert harness.list_entry_kinds(done) == [
        "requested",
        "planned",
        "approved",
        "claimed",
        "started",
        "step sending",
        "step succeeded",
        "verified",
        "succeeded",
    ]


def test_check_succeeds_at_once_with_a_report(harness: Harness):
    run = harness.request(ShowSwitches(host="lb1"))
    assert run.state is State.SUCCEEDED
    assert run.report
    assert run.report.summary == "2 switches"
    assert harness.fleet.sent == []


def test_host_is_read_for_the_plan_at_the_gate_and_for_verification(harness: Harness):
    run = harness.request(LAMP_ON)
    assert harness.fleet.asked == 1
    harness.approve(run)
    assert harness.fleet.asked == 3


def test_request_without_changes_ends_without_an_approval(harness: Harness):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="off"))
    assert (run.state, run.summary) == (State.NO_CHANGES, "lamp is off")


def test_refusal_by_the_runbook_is_shown_with_the_fix(harness: Harness):
    harness.fleet.hosts["lb1"]["lamp"] = "stuck"
    run = harness.request(LAMP_ON)
    assert run.state is State.REFUSED
    assert run.summary == "lamp is stuck: loosen it before setting it"


def test_stale_plan_is_not_applied(harness: Harness):
    run = harness.request(LAMP_ON)
    harness.fleet.hosts["lb1"]["lamp"] = "dim"
    ended = harness.approve(run)
    assert ended.state is State.STALE
    assert "lb1 is not as it was" in ended.summary
    assert harness.fleet.sent == []


def test_run_ends_as_no_changes_when_the_host_was_changed_outside_meanwhile(harness: Harness):
    run = harness.request(LAMP_ON)
    harness.fleet.hosts["lb1"]["lamp"] = "on"
    assert harness.approve(run).state is State.NO_CHANGES
    assert harness.fleet.sent == []


def test_change_that_fails_verification_is_failed(harness: Harness):
    def fall_back(host: str, words: str) -> None:
        harness.fleet.hosts[host]["lamp"] = "off"

    harness.fleet.after_send = fall_back
    ended = harness.approve(harness.request(LAMP_ON))
    assert ended.state is State.FAILED
    assert "verification failed" in ended.summary


def test_failed_step_stops_the_remaining_steps(harness: Harness):
    def refuse(host: str, words: str) -> None:
        if "lamp" in words:
            raise CommandError("output: the lamp is glued")

    harness.fleet.before_send = refuse
    ended = harness.approve(harness.request(SetAll(host="lb1", value="on")))
    assert ended.state is State.FAILED
    assert ended.summary.startswith("Step 2 of 2 failed: output: the lamp is glued")
    assert harness.fleet.sent == [("lb1", "set fan on")]


def test_run_fails_when_its_host_is_unreachable_before_the_command(harness: Harness):
    def gone(host: str, words: str) -> None:
        raise UnreachableError("no route")

    harness.fleet.before_send = gone
    assert harness.approve(harness.request(LAMP_ON)).state is State.FAILED


def test_unknown_outcome_keeps_the_host_locked_until_it_is_resolved(harness: Harness):
    def cut(host: str, words: str) -> None:
        raise UnknownOutcomeError("the connection was lost")

    harness.fleet.before_send = cut
    unknown = harness.approve(harness.request(LAMP_ON))
    assert unknown.state is State.UNKNOWN

    harness.fleet.before_send = lambda _host, _words: None
    blocked = harness.approve(harness.request(SetSwitch(host="lb1", name="fan", value="on")))
    assert blocked.state is State.QUEUED
    assert describe_outcome(blocked) == f"waits for run {unknown.id}, which has locked lb1"
    assert harness.fleet.sent == []

    harness.service.resolve_run(
        unknown.id, person="olga", succeeded=False, reason="looked: the lamp is off"
    )
    harness.run_queued_work()
    assert harness.get_run(blocked.id).state is State.SUCCEEDED


def test_only_an_owner_resolves_an_unknown_outcome_with_a_reason(harness: Harness):
    def cut(host: str, words: str) -> None:
        raise UnknownOutcomeError("the connection was lost")

    harness.fleet.before_send = cut
    run = harness.approve(harness.request(LAMP_ON))
    with pytest.raises(NotAllowed, match="owner of the edge"):
        harness.service.resolve_run(
            run.id, person="dora", succeeded=True, reason="I am quite sure of it"
        )
    with pytest.raises(InvalidRequestError, match="how you know"):
        harness.service.resolve_run(run.id, person="olga", succeeded=True, reason="")
    assert harness.get_run(run.id).state is State.UNKNOWN


def test_internal_error_before_the_first_step_fails_the_run(harness: Harness):
    def trip(host: str) -> None:
        raise ZeroDivisionError

    harness.fleet.before_query = trip
    run = harness.request(LAMP_ON)
    assert run.state is State.FAILED
    assert "An internal error occurred before anything was sent" in run.summary


def test_internal_error_while_sending_a_step_ends_as_unknown_outcome(harness: Harness):
    def trip(host: str, words: str) -> None:
        raise ZeroDivisionError

    harness.fleet.before_send = trip
    assert harness.approve(harness.request(LAMP_ON)).state is State.UNKNOWN


class TestUndo:
    def test_undo_reverts_the_steps_in_reverse_order(self, harness: Harness):
        done = harness.approve(harness.request(SetAll(host="lb1", value="on")))
        harness.fleet.sent.clear()
        undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
        harness.run_queued_work()
        ended = harness.approve(harness.get_run(undo.id))
        assert ended.state is State.SUCCEEDED
        assert harness.fleet.sent == [("lb1", "set lamp off"), ("lb1", "set fan off")]

    def test_undo_step_shows_its_undo_title(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        planned = SetSwitch.plan

        def titled(runbook: SetSwitch, switches: dict[str, str]) -> Plan:
            plan = planned(runbook, switches)
            steps = [replace(step, undo_title="Darken the cellar") for step in plan.steps]
            return replace(plan, steps=steps)

        monkeypatch.setattr(SetSwitch, "plan", titled)
        done = harness.approve(harness.request(LAMP_ON))
        undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
        harness.run_queued_work()
        proposal = harness.get_run(undo.id).plan
        assert proposal is not None
        assert [step.title for step in proposal.steps] == ["Darken the cellar"]

    def test_undo_needs_an_approval_like_any_change(self, harness: Harness):
        done = harness.approve(harness.request(LAMP_ON))
        undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
        harness.run_queued_work()
        assert harness.get_run(undo.id).state is State.PENDING

    def test_undo_of_a_change_no_longer_in_effect_makes_no_changes(self, harness: Harness):
        done = harness.approve(harness.request(LAMP_ON))
        harness.fleet.hosts["lb1"]["lamp"] = "dim"
        undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
        harness.run_queued_work()
        ended = harness.get_run(undo.id)
        assert ended.state is State.NO_CHANGES
        assert "not in effect any more" in ended.summary

    def test_undo_of_a_failed_run_reverts_only_its_completed_steps(self, harness: Harness):
        def refuse(host: str, words: str) -> None:
            if words == "set lamp on":
                raise CommandError("glued")

        harness.fleet.before_send = refuse
        failed = harness.approve(harness.request(SetAll(host="lb1", value="on")))
        harness.fleet.sent.clear()
        undo = harness.service.request_undo(failed.id, RequestTerms("dora", WEB))
        harness.run_queued_work()
        assert harness.approve(harness.get_run(undo.id)).state is State.SUCCEEDED
        assert harness.fleet.sent == [("lb1", "set fan off")]

    def test_undo_of_an_irreversible_change_is_refused_with_the_reason(self, harness: Harness):
        done = harness.approve(harness.request(BreakSwitch(host="lb1", name="lamp")))
        assert done.state is State.SUCCEEDED
        undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
        harness.run_queued_work()
        assert harness.get_run(undo.id).state is State.REFUSED
        assert "cannot be undone: gone" in harness.get_run(undo.id).summary

    def test_undo_of_a_check_is_rejected(self, harness: Harness):
        look = harness.request(ShowSwitches(host="lb1"))
        with pytest.raises(InvalidRequestError, match="changed nothing"):
            harness.service.request_undo(look.id, RequestTerms("dora", WEB))


class TestRequests:
    def test_request_for_an_unknown_host_suggests_similar_hosts(self, harness: Harness):
        with pytest.raises(InvalidRequestError, match="did you mean lb1, lb2"):
            harness.request(SetSwitch(host="lb7", name="lamp", value="on"))
        assert harness.list_entry_kinds() == []

    def test_person_without_a_role_may_run_checks_only(self, harness: Harness):
        people = harness.policies.path / "people.yaml"
        people.write_text(people.read_text() + "  gus: {name: Gus Guest}\n")
        assert harness.request(ShowSwitches(host="lb1"), person="gus").state is State.SUCCEEDED
        refused = harness.request(LAMP_ON, person="gus")
        assert refused.state is State.REFUSED
        assert harness.list_entry_kinds(refused) == ["requested", "refused"]

    def test_owner_makes_a_reversible_change_without_approval(self, harness: Harness):
        assert harness.request(LAMP_ON, person="olga").state is State.SUCCEEDED

    def test_owner_needs_another_owner_to_approve_an_irreversible_change(self, harness: Harness):
        run = harness.request(BreakSwitch(host="lb1", name="lamp"), person="olga")
        assert run.state is State.PENDING
        with pytest.raises(NotAllowed, match=r"you requested it.*Adam Admin"):
            harness.approve(run, person="olga")
        assert harness.approve(run, person="adam").state is State.SUCCEEDED

    def test_a_reason_with_invisible_characters_is_refused(self, harness: Harness):
        with pytest.raises(InvalidRequestError, match=r"U\+202E"):
            harness.request(LAMP_ON, reason="nothing \u202e to see")

    def test_a_reason_of_several_lines_is_kept_on_one(self, harness: Harness):
        assert harness.request(LAMP_ON, reason=" it is\r\n\tdark ").reason == "it is dark"


class TestDecisions:
    def test_requester_cannot_approve_their_own_request(self, harness: Harness):
        run = harness.request(LAMP_ON, person="dora")
        with pytest.raises(NotAllowed, match="you requested it"):
            harness.approve(run, person="dora")
        assert harness.list_entry_kinds(run)[-1] == "approval refused"

    def test_only_owners_of_the_area_approve(self, harness: Harness):
        run = harness.request(LAMP_ON)
        with pytest.raises(NotAllowed, match="Those who can: Adam Admin, Olga Owner"):
            harness.approve(run, person="stan")
        assert harness.fleet.sent == []

    def test_second_approver_sees_who_approved_first(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.approve(run, person="olga")
        with pytest.raises(TooLate, match="approved by Olga Owner"):
            harness.approve(run, person="adam")
        assert harness.fleet.sent == [("lb1", "set lamp on")]

    def test_approval_with_the_digest_of_another_plan_is_rejected(self, harness: Harness):
        run = harness.request(LAMP_ON)
        with pytest.raises(TooLate, match="is not that of the plan"):
            harness.service.approve_run(run.id, person="olga", digest="0" * 64)
        assert harness.get_run(run.id).state is State.PENDING

    @pytest.mark.parametrize("digest", ["", "a", "123456789"])
    def test_approval_with_too_few_characters_of_the_digest_is_rejected(
        self, harness: Harness, digest: str
    ):
        run = harness.request(LAMP_ON)
        with pytest.raises(TooLate):
            harness.service.approve_run(run.id, person="olga", digest=run.digest[: len(digest)])

    def test_single_denial_ends_the_request(self, harness: Harness):
        run = harness.request(LAMP_ON)
        denied = harness.service.deny_run(run.id, person="adam", reason="not today")
        assert (denied.state, denied.summary) == (State.DENIED, "Adam Admin denied it: not today")
        with pytest.raises(TooLate, match="denied by Adam Admin"):
            harness.approve(run, person="olga")

    def test_denial_after_an_approval_counts_until_the_first_step_starts(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.service.deny_run(run.id, person="adam", reason="wait")
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.DENIED
        assert harness.fleet.sent == []

    def test_denial_while_the_gate_plans_again_counts(self, harness: Harness):
        run = harness.request(LAMP_ON)

        def deny_meanwhile(host: str) -> None:
            harness.fleet.before_query = lambda _host: None
            harness.service.deny_run(run.id, person="adam", reason="wait")

        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.fleet.before_query = deny_meanwhile
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.DENIED
        assert harness.fleet.sent == []
        with harness.database.reading() as tx:
            assert locks.get_lock(tx, "lb1") is None

    def test_only_the_requester_may_withdraw_a_run(self, harness: Harness):
        run = harness.request(LAMP_ON)
        with pytest.raises(NotAllowed, match="only Dora Developer"):
            harness.service.withdraw_run(run.id, person="olga")
        assert harness.service.withdraw_run(run.id, person="dora").state is State.WITHDRAWN


class TestGate:
    def test_gate_refuses_a_run_when_its_approver_lost_the_role(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        areas = harness.policies.path / "areas.yaml"
        areas.write_text(areas.read_text().replace("[olga, adam]", "[adam]"))
        harness.run_queued_work()
        ended = harness.get_run(run.id)
        assert ended.state is State.REFUSED
        assert "0 of 1 required approvals" in ended.summary
        assert harness.fleet.sent == []

    def test_gate_refuses_a_run_when_its_requester_left(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        people = harness.policies.path / "people.yaml"
        people.write_text(people.read_text().replace("dora:", "dolores:"))
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.REFUSED
        assert harness.fleet.sent == []

    def test_plan_is_stale_when_the_policy_changed(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        rules = harness.policies.path / "policy.cedar"
        rules.write_text(rules.read_text().replace("an owner of the area", "an owner"))
        harness.run_queued_work()
        assert "the policy was changed" in harness.get_run(run.id).summary

    def test_plan_is_stale_when_the_host_key_changed_in_the_loaded_policy(self, harness: Harness):
        run = harness.request(LAMP_ON)
        policy = harness.policies.get_policy()
        other = policy.inventory["lb1"].model_copy(
            update={"host_key": policy.inventory["lb1"].host_key[:-4] + "AAAA"}  # pyright: ignore
        )
        policy.inventory.hosts["lb1"] = other  # pyright: ignore
        ended = harness.approve(run)
        assert ended.state is State.STALE
        assert "the host key of lb1 in the inventory changed" in ended.summary

    def test_plan_made_stale_by_a_new_host_key_names_the_key_and_not_the_policy(
        self, harness: Harness
    ):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        _change_host_key(harness)
        harness.run_queued_work()
        ended = harness.get_run(run.id)
        assert ended.state is State.STALE
        assert "the host key of lb1 in the inventory changed" in ended.summary

    def test_plan_with_fewer_steps_left_is_stale_without_naming_a_host_key(self, harness: Harness):
        run = harness.request(SetAll(host="lb1", value="on"))
        harness.fleet.hosts["lb1"]["fan"] = "on"
        ended = harness.approve(run)
        assert ended.state is State.STALE
        assert "lb1 is not as it was: fan=on lamp=off" in ended.summary
        assert "key" not in ended.summary
        assert harness.fleet.sent == []
        assert harness.fleet.sent == []

    def test_gate_refuses_every_run_when_the_policy_is_invalid(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        (harness.policies.path / "policy.cedar").write_text("permit (")
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.REFUSED
        assert harness.fleet.sent == []

    def test_requester_is_checked_again_before_each_step(self, harness: Harness):
        def fire(host: str, words: str) -> None:
            people = harness.policies.path / "people.yaml"
            people.write_text(people.read_text().replace("dora:", "dolores:"))

        harness.fleet.after_send = fire
        ended = harness.approve(harness.request(SetAll(host="lb1", value="on")))
        assert ended.state is State.FAILED
        assert "Stopped before step 2" in ended.summary
        assert harness.fleet.sent == [("lb1", "set fan on")]

    def test_approved_run_expires_before_its_start(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        with harness.database.transaction() as tx:
            held = runs.get_run(tx, run.id)
            runs.amend_run(tx, held, expires_at=tx.now)
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.EXPIRED
        assert harness.fleet.sent == []

    def test_step_intent_is_committed_before_the_command_is_sent(self, harness: Harness):
        seen: list[str] = []

        def look(host: str, words: str) -> None:
            with harness.database.reading() as tx:
                seen.extend(step.state for step in runs.list_steps(tx, 1))
                seen.append(change_log.list_newest_entries(tx, limit=1)[0].kind)

        harness.fleet.before_send = look
        harness.approve(harness.request(LAMP_ON))
        assert seen == [StepState.INTENT, "step sending"]


class TestRecovery:
    def test_running_run_is_unknown_outcome_after_a_crash(self, harness: Harness):
        class PowerCut(BaseException):
            pass

        def die(host: str, words: str) -> None:
            raise PowerCut

        harness.fleet.before_send = die
        run = harness.request(LAMP_ON)
        with pytest.raises(PowerCut):
            harness.approve(run)
        assert harness.get_run(run.id).state is State.RUNNING
        harness.service.advancer.recover_unfinished_runs()
        assert harness.get_run(run.id).state is State.UNKNOWN
        # It was a crash, and nobody is told that somebody may have altered the database.
        assert "its outcome is unknown" in harness.get_run(run.id).summary

    def test_queued_run_continues_after_a_restart(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.dispatcher.enqueued.clear()
        harness.service.advancer.recover_unfinished_runs()
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED

    def test_claimed_run_without_a_step_intent_starts_again_after_a_crash(self, harness: Harness):
        class PowerCut(BaseException):
            pass

        def die(host: str) -> None:
            raise PowerCut

        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.fleet.before_query = die
        with pytest.raises(PowerCut):
            harness.run_queued_work()
        assert harness.get_run(run.id).state is State.STARTING
        harness.fleet.before_query = lambda _host: None
        harness.service.advancer.recover_unfinished_runs()
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED
        assert harness.fleet.sent == [("lb1", "set lamp on")]


def test_run_title_is_the_request_as_it_is_typed(harness: Harness):
    assert harness.request(LAMP_ON).title == "toy set lb1 lamp on"


def test_change_log_alone_proves_which_plan_was_approved(harness: Harness):
    run = harness.approve(harness.request(LAMP_ON))
    with harness.database.reading() as tx:
        facts = {entry.kind: entry.facts for entry in change_log.list_entries_of_run(tx, run.id)}
    plan = facts["planned"]["plan"]
    document, section = (
        "\n".join([*lines, ""]) for lines in (plan["document"], *plan["sections"])
    )
    assert sha256(document.encode()).hexdigest() == run.digest
    assert f"\nhost lb1 {sha256(section.encode()).hexdigest()} SHA256:" in document
    assert "\ndo set\ndo lamp\ndo on\n" in section
    assert facts["approved"]["digest"] == facts["started"]["digest"] == run.digest


class Mirror(SetSwitch, words="toy mirror", example="lb1 lamp on", undo="sets it back"):
    """Set one switch, of which the host says something that reads otherwise."""

    def plan(self, switches: dict[str, str]) -> Plan:
        plan = super().plan(switches)
        return replace(plan, steps=[replace(step, before="off\u202e") for step in plan.steps])


def test_plan_shows_characters_that_people_cannot_see_as_escapes(harness: Harness):
    harness.service = KeyturnService(
        replace(harness.context, runbooks={**harness.context.runbooks, "toy mirror": Mirror})
    )
    run = harness.request(Mirror(host="lb1", name="lamp", value="on"))
    assert run.state is State.PENDING
    assert run.plan
    assert "\\u202e" in run.plan.steps[0].before
    assert run.plan.steps[0].before.isprintable()
    assert harness.approve(run).state is State.SUCCEEDED


def test_undecided_run_expires(harness: Harness):
    waiting, other = harness.request(LAMP_ON), harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        runs.amend_run(tx, runs.get_run(tx, waiting.id), expires_at=tx.now)
    assert [run.id for run in harness.service.advancer.expire_runs()] == [waiting.id]
    assert harness.get_run(waiting.id).state is State.EXPIRED
    assert harness.get_run(other.id).state is State.PENDING
    assert harness.service.advancer.expire_runs() == []


class TestFreezes:
    """A freeze is checked where a change would start."""

    FROZEN = 'freezes: [{name: fair, from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]\n'

    def _freeze(self, harness: Harness, text: str) -> None:
        (harness.policies.path / "freezes.yaml").write_text(text)

    def test_change_is_on_hold_during_a_freeze_and_starts_after_it(self, harness: Harness):
        self._freeze(harness, self.FROZEN)
        waiting = harness.approve(harness.request(LAMP_ON))
        assert waiting.state is State.QUEUED
        frozen = "the edge is frozen until 2999-01-01 00:00 UTC (fair)"
        assert describe_outcome(waiting) == frozen
        assert harness.fleet.sent == []

        # A frozen crowd is not looked at again and again.
        harness.service.advancer.wake_stalled_runs()
        assert harness.dispatcher.enqueued == []
        assert harness.list_entry_kinds(waiting).count("on hold") == 1

        # The freeze ends as such, and not by an edit: that would make the plan stale.
        policy = harness.policies.get_policy()
        policy.freezes = FreezeList()
        harness.service.advancer.wake_stalled_runs()
        harness.run_queued_work()
        assert harness.get_run(waiting.id).state is State.SUCCEEDED

    def test_runbook_excepted_from_a_freeze_runs_during_it(self, harness: Harness):
        self._freeze(harness, self.FROZEN.replace("{name", "{but: ['toy *'], name"))
        assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED

    def test_check_runs_during_a_freeze(self, harness: Harness):
        self._freeze(harness, self.FROZEN)
        assert harness.request(ShowSwitches(host="lb1")).state is State.SUCCEEDED

    def test_freeze_that_begins_while_the_gate_plans_again_holds_the_run(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        freeze = {"name": "fair", "from": "1999-01-01 00:00", "until": "2999-01-01 00:00"}
        policy = harness.policies.get_policy()

        def begin(host: str) -> None:
            policy.freezes = FreezeList.model_validate({"freezes": [freeze]})

        harness.fleet.before_query = begin
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.QUEUED
        assert harness.fleet.sent == []
        with harness.database.reading() as tx:
            assert locks.get_lock(tx, "lb1") is None

    def test_change_runs_when_no_freeze_is_active(self, harness: Harness):
        assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED


def test_plan_altered_in_the_database_is_not_applied(harness: Harness):
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    assert run.plan
    other = replace(run.plan.steps[0], command=Shell(("set", "lamp", "smashed")))
    with harness.database.transaction() as tx:
        altered = replace(run.plan, steps=(other,))
        runs.amend_run(tx, runs.get_run(tx, run.id), plan=altered)
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.REFUSED
    assert harness.fleet.sent == []


def _change_host_key(harness: Harness) -> None:
    inventory = harness.policies.path / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace(HOST_KEY, HOST_KEY[:-4] + "AAAA"))


def test_run_stops_before_the_next_step_when_the_host_key_changed(
    harness: Harness,
):
    harness.fleet.after_send = lambda _host, _words: _change_host_key(harness)
    ended = harness.approve(harness.request(SetAll(host="lb1", value="on")))
    assert ended.state is State.FAILED
    assert (
        "Stopped before step 2: the host key of lb1 in the inventory has changed" in ended.summary
    )
    assert harness.fleet.sent == [("lb1", "set fan on")]


def test_undo_plan_uses_the_current_host_key_fingerprint(harness: Harness):
    done = harness.approve(harness.request(LAMP_ON))
    _change_host_key(harness)
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    harness.run_queued_work()
    proposal = harness.get_run(undo.id).plan
    assert proposal
    now = harness.policies.get_policy().inventory["lb1"].fingerprint
    assert [step.fingerprint for step in proposal.steps] == [now]


def test_run_fails_unverified_when_the_policy_breaks_after_its_last_step(harness: Harness):
    def spoil(_host: str, _words: str) -> None:
        (harness.policies.path / "policy.cedar").write_text("permit (")

    harness.fleet.after_send = spoil
    ended = harness.approve(harness.request(LAMP_ON))
    assert ended.state is State.FAILED
    assert "Every step succeeded, but the result could not be verified" in ended.summary


def test_request_without_a_plan_can_be_denied(harness: Harness):
    run = harness.service.request_run(LAMP_ON, RequestTerms("dora", WEB))
    assert (
        harness.service.deny_run(run.id, person="olga", reason="not today").state is State.DENIED
    )


class TestLostDatabase:
    """A run that lost the database in the middle is found and resumed by the clock."""

    def test_run_that_lost_the_database_during_planning_is_resumed(self, harness: Harness):
        harness.fleet.before_query = _lose_database_once(harness)
        run = harness.request(LAMP_ON)
        assert run.state is State.PLANNING
        harness.service.advancer.wake_stalled_runs()
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.PENDING

    def test_run_that_lost_the_database_at_the_gate_is_resumed(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.fleet.before_query = _lose_database_once(harness)
        assert harness.approve(run).state is State.STARTING
        harness.service.advancer.wake_stalled_runs()
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED
        assert harness.fleet.sent == [("lb1", "set lamp on")]

    def test_run_that_lost_the_database_before_verification_is_resumed(self, harness: Harness):
        def lose(_host: str, _words: str) -> None:
            harness.fleet.before_query = _lose_database_once(harness)

        harness.fleet.after_send = lose
        run = harness.approve(harness.request(LAMP_ON))
        assert run.state is State.RUNNING
        harness.service.advancer.wake_stalled_runs()
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED
        assert harness.fleet.sent == [("lb1", "set lamp on")]

    def test_running_run_is_not_enqueued_by_the_stalled_run_check(self, harness: Harness):
        def look(_host: str, _words: str) -> None:
            harness.service.advancer.wake_stalled_runs()
            assert harness.dispatcher.enqueued == []

        harness.fleet.before_send = look
        assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED

    def test_database_error_of_a_second_worker_does_not_end_the_running_run(
        self, harness: Harness
    ):
        run = harness.request(SetAll(host="lb1", value="on"))

        class Gone:
            def __enter__(self) -> None:
                raise StoreUnavailable("the database says: too many clients")

            def __exit__(self, *_: object) -> None: ...

        def look_twice(_host: str, _words: str) -> None:
            reading = harness.database.reading
            harness.database.reading = Gone  # pyright: ignore[reportAttributeAccessIssue] - it fails
            harness.service.advancer.advance_run(run.id)
            harness.database.reading = reading
            harness.service.advancer.wake_stalled_runs()

        harness.fleet.before_send = look_twice
        assert harness.approve(run).state is State.SUCCEEDED
        assert len(harness.fleet.sent) == 2

    def test_run_that_waits_for_a_host_lock_is_not_woken_as_stalled(self, harness: Harness):
        def cut(_host: str, _words: str) -> None:
            raise UnknownOutcomeError("the connection was lost")

        harness.fleet.before_send = cut
        holder = harness.approve(harness.request(LAMP_ON))
        harness.approve(harness.request(SetSwitch(host="lb1", name="fan", value="on")))
        harness.service.advancer.wake_stalled_runs()
        assert harness.dispatcher.enqueued == [holder.id]


def _lose_database_once(harness: Harness) -> Callable[[str], None]:
    def lose(_host: str) -> None:
        harness.fleet.before_query = lambda _host: None
        raise StoreUnavailable("the database says: server closed the connection")

    return lose


def test_each_command_is_sent_to_the_approved_host_key(harness: Harness):
    harness.approve(harness.request(SetAll(host="lb1", value="on")))
    assert (
        harness.fleet.fingerprints
        == [harness.policies.get_policy().inventory["lb1"].fingerprint] * 2
    )


def test_outcome_that_the_database_rejects_is_retried_four_times(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """A row that cannot be written is no outage: the run rests, and its host is asked."""
    tried: list[int] = []

    def refuse(tx: Transaction, record: StepRecord) -> None:
        tried.append(record.step_number)
        tx.sql.execute(insert(tables.decision).values(run=999, person="x"))

    run = harness.request(LAMP_ON)
    with monkeypatch.context() as patched:
        patched.setattr(runs, "record_outcome", refuse)
        harness.approve(run)
    assert tried == [1, 1, 1, 1]
    assert harness.get_run(run.id).state is State.RUNNING
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    assert harness.list_entry_kinds(run)[-6:-2] == [
        "unknown",
        "host queried",
        "host answered",
        STEP_DONE,
    ]
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert len(harness.fleet.sent) == 1


class TestShutdown:
    """The current step is finished, nothing starts, and the next start continues."""

    def _again(self, harness: Harness) -> None:
        harness.dispatcher.enqueued.clear()
        harness.service = KeyturnService(harness.context)
        harness.service.advancer.recover_unfinished_runs()
        harness.run_queued_work()

    def test_shutdown_finishes_the_current_step_and_sends_no_further_one(self, harness: Harness):
        harness.fleet.before_send = lambda _host, _words: harness.service.close()
        run = harness.approve(harness.request(SetAll(host="lb1", value="on")))
        assert run.state is State.RUNNING
        self._again(harness)
        ended = harness.get_run(run.id)
        assert ended.state is State.STOPPED
        assert ended.summary == (
            "Keyturn itself stopped, before step 2 of 2. Done: “Set fan”. "
            "To revert it, request the undo of run 1."
        )
        assert harness.fleet.sent == [("lb1", "set fan on")]
        with harness.database.reading() as tx:
            assert locks.get_lock(tx, "lb1") is None

    def test_run_approved_during_shutdown_starts_after_the_restart(self, harness: Harness):
        run = harness.request(LAMP_ON)
        harness.service.close()
        assert harness.approve(run).state is State.QUEUED
        self._again(harness)
        assert harness.get_run(run.id).state is State.SUCCEEDED

    def test_run_interrupted_at_the_gate_by_shutdown_starts_after_the_restart(
        self, harness: Harness
    ):
        def cut(_host: str) -> None:
            harness.service.close()
            raise UnreachableError("Keyturn is shutting down")

        run = harness.request(LAMP_ON)
        harness.fleet.before_query = cut
        assert harness.approve(run).state is State.QUEUED
        with harness.database.reading() as tx:
            assert locks.get_lock(tx, "lb1") is None
        harness.fleet.before_query = lambda _host: None
        self._again(harness)
        assert harness.get_run(run.id).state is State.SUCCEEDED


class Follow(Change[dict[str, str]], words="toy follow", example="lb1", undo="puts it back"):
    """Set the lamp as a feed says, which may say something else by tomorrow."""

    host: Host
    feed: ClassVar[str] = "on"

    def read(self, ask: QueryRunner) -> dict[str, str]:
        return ask(self.host, SHOW)

    def plan(self, switches: dict[str, str]) -> Plan:
        was = switches["lamp"]
        if was == self.feed:
            return Plan(f"the lamp is {was}")
        do, undo = (Shell(("set", "lamp", value)) for value in (self.feed, was))
        return Plan(f"the lamp is {was}", [Step("Follow the feed", self.host, do, undo, was)])


def test_undo_is_verified_when_the_feed_of_the_change_has_moved(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    harness.service = KeyturnService(
        replace(harness.context, runbooks={**harness.context.runbooks, "toy follow": Follow})
    )
    done = harness.approve(harness.request(Follow(host="lb1")))
    monkeypatch.setattr(Follow, "feed", "bright")
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    harness.run_queued_work()
    ended = harness.approve(harness.get_run(undo.id))
    assert ended.state is State.SUCCEEDED
    assert harness.fleet.sent[-1] == ("lb1", "set lamp off")


def test_undo_that_cannot_apply_any_more_is_refused_at_planning(
    harness: Harness,
):
    done = harness.approve(harness.request(WarmUp(host="lb1", name="lamp", value="on")))
    assert done.state is State.SUCCEEDED
    harness.fleet.hosts["lb1"]["warming"] = "burnt"
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    harness.run_queued_work()
    after = harness.get_run(undo.id)
    assert (after.state, after.summary) == (State.REFUSED, "it is burnt out, and stays so")
    harness.fleet.hosts["lb1"].pop("warming")
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    harness.run_queued_work()
    assert harness.get_run(undo.id).state is State.PENDING


def test_undo_that_cannot_apply_any_more_at_the_gate_sends_nothing(harness: Harness):
    done = harness.approve(harness.request(WarmUp(host="lb1", name="lamp", value="on")))
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    harness.run_queued_work()
    harness.fleet.hosts["lb1"]["warming"] = "burnt"
    sent_before = list(harness.fleet.sent)
    after = harness.approve(harness.get_run(undo.id))
    assert after.is_ended
    assert "burnt out" in after.summary
    assert harness.fleet.sent == sent_before


def test_undo_is_verified_when_its_change_would_be_refused_now(harness: Harness):
    done = harness.approve(harness.request(WarmUp(host="lb1", name="lamp", value="on")))
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    harness.run_queued_work()
    harness.fleet.hosts["lb1"]["weather"] = "hot"
    after = harness.approve(harness.get_run(undo.id))
    assert (after.state, harness.fleet.hosts["lb1"]["lamp"]) == (State.SUCCEEDED, "off")
