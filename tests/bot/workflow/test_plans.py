"""A plan is shown and runs nothing until its requester requests it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.db import locks, outbox, runs, search
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestTerms, Run, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.queries.pending import describe_expiry_before_freeze_ends
from bot.queries.run_view import AllowedActions, Viewer, build_run_view
from bot.workflow import plans
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch, ShowSwitches

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def _plan(harness: Harness, person: str = "dora", reason: str = "") -> Run:
    run = harness.service.request_run(LAMP_ON, RequestTerms(person, WEB, reason, plan_only=True))
    harness.run_queued_work()
    return harness.get_run(run.id)


def _request(harness: Harness, run: Run, person: str = "dora", reason: str = "") -> Run:
    harness.service.request_plan(run.id, person=person, digest=run.digest, reason=reason)
    harness.run_queued_work()
    return harness.get_run(run.id)


def _log_nothing(*_: object) -> None:
    return


class TestPlan:
    def test_plan_is_shown_and_runs_nothing(self, db_harness: Harness):
        harness = db_harness
        run = _plan(harness)
        assert (run.state, run.required_approvals) == (State.PLANNED, 1)
        assert run.plan
        assert [step.title for step in run.plan.steps] == ["Set lamp to on"]
        assert harness.list_entry_kinds(run) == ["plan requested", "planned"]
        assert harness.fleet.sent == []
        with harness.database.reading() as tx:
            assert locks.get_lock(tx, "lb1") is None
            assert outbox.list_pending_updates(tx) == []

    def test_plan_without_needed_approvals_waits_until_it_is_requested(self, harness: Harness):
        run = _plan(harness, person="olga")
        assert (run.state, run.required_approvals) == (State.PLANNED, 0)
        assert harness.fleet.sent == []
        assert _request(harness, run, person="olga").state is State.SUCCEEDED
        assert harness.fleet.sent == [("lb1", "set lamp on")]

    def test_requested_plan_needs_its_approvals(self, db_harness: Harness):
        harness = db_harness
        run = _request(harness, _plan(harness), reason="the cellar is dark")
        assert (run.state, run.reason) == (State.PENDING, "the cellar is dark")
        with harness.database.reading() as tx:
            assert [item.run for item in outbox.list_pending_updates(tx)] == [run.id]
        assert harness.approve(run).state is State.SUCCEEDED
        assert harness.list_entry_kinds(run)[:5] == [
            "plan requested",
            "planned",
            "requested",
            "planned",
            "approved",
        ]

    def test_reason_that_is_given_with_the_request_makes_another_plan(self, harness: Harness):
        shown = _plan(harness)
        run = _request(harness, shown, reason="the cellar is dark")
        assert shown.plan
        assert run.plan
        assert "\nreason the cellar is dark\n" in run.plan.document
        assert run.digest == run.plan.digest != shown.digest
        assert run.plan.nonce != shown.plan.nonce
        with pytest.raises(TooLate, match="is not that of the plan"):
            harness.service.approve_run(run.id, person="olga", digest=shown.digest)

    def test_plan_expires_after_15_minutes(self, harness: Harness):
        run = _plan(harness)
        with harness.database.transaction() as tx:
            assert run.expires_at
            waits = run.expires_at - run.requested_at
            assert 14 * 60 < waits / 1_000_000 < 16 * 60
            runs.amend_run(tx, run, expires_at=tx.now)
        with pytest.raises(TooLate, match="has expired: re-plan it"):
            _request(harness, run)
        assert [ended.id for ended in harness.service.advancer.expire_runs()] == [run.id]
        assert harness.get_run(run.id).summary == "The plan was not requested in time"

    def test_plan_with_another_digest_cannot_be_requested(self, harness: Harness):
        run = _plan(harness)
        with pytest.raises(TooLate, match="is not that of the plan"):
            _request(harness, replace(run, digest="0" * 64))

    def test_plan_is_requested_only_by_its_requester(self, harness: Harness):
        run = _plan(harness)
        with pytest.raises(NotAllowed, match="only Dora"):
            _request(harness, run, person="olga")

    def test_plan_is_requested_only_once(self, harness: Harness):
        run = _plan(harness)
        _request(harness, run)
        with pytest.raises(TooLate, match="is pending"):
            _request(harness, run)

    def test_plan_cannot_be_approved_or_denied_before_it_is_requested(self, harness: Harness):
        run = _plan(harness)
        with pytest.raises(TooLate, match="only a plan"):
            harness.service.deny_run(run.id, person="olga", reason="no")
        with pytest.raises(TooLate, match="planned"):
            harness.service.approve_run(run.id, person="olga", digest=run.digest)
        with harness.database.reading() as tx:
            policy = harness.policies.get_policy()
            view = build_run_view(tx, run.id, policy, Viewer("olga"))
            assert view.allowed_actions == AllowedActions()
            mine = build_run_view(tx, run.id, policy, Viewer("dora"))
        assert mine.allowed_actions.submit
        assert [person.id for person in mine.approvers] == ["adam", "olga"]

    def test_plan_can_be_withdrawn(self, harness: Harness):
        run = _plan(harness)
        assert harness.service.withdraw_run(run.id, person="dora").state is State.WITHDRAWN

    def test_plan_is_not_listed_among_the_runs_until_it_is_requested(self, db_harness: Harness):
        harness = db_harness
        run = _plan(harness)

        def listed(**by: object) -> list[int]:
            with harness.database.reading() as tx:
                run_filter = search.RunFilter(**by)  # pyright: ignore[reportArgumentType]
                return [one.id for one in search.search_runs(tx, run_filter).runs]

        assert listed() == listed(host="lb1") == []
        assert listed(states=frozenset({State.PLANNED})) == [run.id]
        _request(harness, run)
        assert listed() == listed(host="lb1") == [run.id]

    def test_plan_of_a_check_is_rejected(self, harness: Harness):
        with pytest.raises(InvalidRequestError, match="only reads, so it has no plan"):
            harness.service.request_run(
                ShowSwitches(host="lb1"), RequestTerms("dora", WEB, plan_only=True)
            )

    def test_plan_whose_request_is_not_in_the_log_is_refused_at_the_gate(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        """Twin: without the entry of its request, a plan in the queue is stopped at the gate."""
        run = _plan(harness, person="olga")
        monkeypatch.setattr(plans, "log_request", _log_nothing)
        ended = _request(harness, run, person="olga")
        assert ended.state is State.REFUSED
        assert "does not confirm that olga requested this" in ended.summary
        assert harness.fleet.sent == []

    def test_plan_under_an_earlier_policy_cannot_be_requested(self, harness: Harness):
        run = _plan(harness)
        rules = harness.policies.path / "policy.cedar"
        rules.write_text(rules.read_text().replace("an owner of the area", "an owner"))
        with pytest.raises(TooLate, match="earlier policy"):
            _request(harness, run)

    def test_requested_plan_is_stale_when_the_host_changed(self, harness: Harness):
        run = _plan(harness, person="olga")
        harness.fleet.hosts["lb1"]["lamp"] = "dim"
        ended = _request(harness, run, person="olga")
        assert ended.state is State.STALE
        assert harness.fleet.sent == []


def test_plan_of_several_hosts_is_requested_as_one(db_harness: Harness):
    harness = db_harness
    both = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    parent = harness.service.request_on_hosts(
        both, RequestTerms("dora", WEB, plan_only=True), host_pattern="lb*"
    )
    harness.run_queued_work()
    planned = harness.get_run(parent.id)
    assert planned.state is State.PLANNED
    with harness.database.reading() as tx:
        assert search.search_runs(tx, search.RunFilter(host="lb2")).runs == []
    done = harness.approve(_request(harness, planned))
    assert done.state is State.SUCCEEDED
    assert sorted(harness.fleet.sent) == [("lb1", "set lamp on"), ("lb2", "set lamp on")]


def test_plan_of_a_schedule_is_requested(harness: Harness):
    hourly = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
    run = harness.service.request_on_hosts(
        [LAMP_ON], RequestTerms("dora", WEB, timing=hourly, plan_only=True), host_pattern=""
    )
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.PLANNED
    assert _request(harness, harness.get_run(run.id)).state is State.PENDING


def test_plan_of_an_undo_is_requested(harness: Harness):
    done = harness.approve(harness.request(LAMP_ON))
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB, plan_only=True))
    harness.run_queued_work()
    assert harness.get_run(undo.id).state is State.PLANNED
    harness.approve(_request(harness, harness.get_run(undo.id)))
    assert harness.fleet.sent == [("lb1", "set lamp on"), ("lb1", "set lamp off")]


class TestReplan:
    def test_replan_of_a_stale_run_keeps_values_and_reason_and_notes_the_difference(
        self, harness: Harness
    ):
        run = harness.request(LAMP_ON, reason="the cellar is dark")
        harness.fleet.hosts["lb1"]["lamp"] = "dim"
        stale = harness.approve(run)
        assert stale.state is State.STALE
        new = harness.service.replan_run(stale.id, person="dora", origin=WEB)
        harness.run_queued_work()
        new = harness.get_run(new.id)
        assert (new.state, new.values, new.reason) == (State.PENDING, run.values, run.reason)
        assert new.plan
        assert new.plan.notes[-1] == "Replaces run 1, which is stale: 1 of 1 step differ."
        assert harness.approve(new).state is State.SUCCEEDED

    def test_replan_of_a_plan_supersedes_it(self, harness: Harness):
        run = _plan(harness)
        new = harness.service.replan_run(run.id, person="dora", origin=WEB)
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUPERSEDED
        assert harness.get_run(new.id).state is State.PLANNED

    def test_replan_of_another_persons_run_is_refused(self, harness: Harness):
        run = harness.request(LAMP_ON)
        with pytest.raises(NotAllowed, match="only Dora"):
            harness.service.replan_run(run.id, person="olga", origin=WEB)

    def test_replan_of_a_succeeded_run_is_refused(self, harness: Harness):
        done = harness.approve(harness.request(LAMP_ON))
        with pytest.raises(TooLate, match="cannot be re-planned"):
            harness.service.replan_run(done.id, person="dora", origin=WEB)


class TestFreezeExpiry:
    """A freeze that holds a run extends the expiry of its approval."""

    DAY = 86_400 * 1_000_000

    def _freeze(self, harness: Harness, *, days: int) -> None:
        begin = datetime.now(UTC) - timedelta(days=1)
        end = begin + timedelta(days=1 + days)
        (harness.policies.path / "freezes.yaml").write_text(
            f'freezes: [{{name: fair, from: "{begin:%Y-%m-%d %H:%M}",'
            f' until: "{end:%Y-%m-%d %H:%M}"}}]\n'
        )

    def test_freeze_extends_the_expiry_of_plan_and_approval(self, harness: Harness):
        self._freeze(harness, days=3)
        run = harness.approve(harness.request(LAMP_ON))
        assert run.state is State.QUEUED
        assert run.expires_at
        assert run.plan
        assert run.expires_at > run.requested_at + 3 * self.DAY
        assert run.plan.expires_at == run.expires_at
        policy = harness.policies.get_policy()
        assert describe_expiry_before_freeze_ends(policy, run, now=run.requested_at) == ""

    def test_long_freeze_does_not_extend_the_expiry_beyond_its_limit(self, harness: Harness):
        self._freeze(harness, days=30)
        run = harness.approve(harness.request(LAMP_ON))
        assert run.expires_at
        assert run.expires_at < run.requested_at + 15 * self.DAY
        policy = harness.policies.get_policy()
        text = describe_expiry_before_freeze_ends(policy, run, now=run.requested_at)
        assert "before the freeze ends" in text

    def test_plan_without_a_freeze_expires_within_a_day(self, harness: Harness):
        run = harness.approve(harness.request(LAMP_ON))
        assert run.plan
        assert run.plan.expires_at < run.requested_at + self.DAY
