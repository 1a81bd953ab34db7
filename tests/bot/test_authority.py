"""What was true at the approval is checked again at the gate; tests without each check fail it."""

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, update

from bot.db import runs, tables
from bot.db.database import Database, Transaction
from bot.db.lease_keeper import HeldLease
from bot.execution import gate, planner
from bot.execution.executor import Executor
from bot.model.errors import NotAllowed, TooLate, TooManyRequestsError
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.policy import Policy, PolicyDirectory
from bot.queries.approval_count import ApprovalCount
from bot.service import KeyturnService
from bot.workflow import approvals, reminders
from bot.workflow.rate_limit import RateLimits
from runbooks import Plan, Step
from tests.bot.clock import Clock
from tests.bot.harness import WEB, Harness, authorise_all, open_harness
from tests.toy import SetAll, SetSwitch, ShowSwitches, Switches

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
MINUTE = 60_000_000
HOUR = 60 * MINUTE
SENT = [("lb1", "set lamp on")]


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())


@pytest.fixture
def timed(tmp_path: Path, clock: Clock) -> Generator[Harness]:
    with open_harness(tmp_path, database=clock) as harness:
        yield harness


def skip_check(*_: object, **__: object) -> None:
    """Stand where a guard stood."""


def add_approved_run(harness: Harness, runbook: SetSwitch | SetAll = LAMP_ON) -> Run:
    """Return a run that was approved, and has not started."""
    run = harness.request(runbook)
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    return run


def continue_run(harness: Harness, run: Run) -> State:
    harness.run_queued_work()
    return harness.get_run(run.id).state


def edit_policy_file(harness: Harness, name: str, old: str, new: str) -> None:
    file = harness.policies.path / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def lose_the_role(harness: Harness) -> None:
    """Take the role of the asker away, which nobody else has."""
    edit_policy_file(harness, "people.yaml", "people:\n", "roles: [developer]\npeople:\n")
    edit_policy_file(
        harness, "people.yaml", "Developer, roles: [developer]", "Developer, roles: []"
    )


def approve_late(harness: Harness, clock: Clock) -> State:
    run = harness.request(LAMP_ON)
    clock.ahead = harness.context.approval_timeout + MINUTE
    return harness.service.approve_run(run.id, person="olga", digest=run.digest).state


class TestApprovalExpiry:
    def test_an_approval_does_not_count_when_the_request_expired(
        self, timed: Harness, clock: Clock
    ):
        with pytest.raises(TooLate):
            approve_late(timed, clock)

    def test_without_the_pending_check_an_expired_request_is_approved(
        self, timed: Harness, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(approvals, "check_is_pending", skip_check)
        assert approve_late(timed, clock) is State.QUEUED

    def test_approved_run_expires_when_the_start_timeout_has_passed(
        self, timed: Harness, clock: Clock
    ):
        run = add_approved_run(timed)
        clock.ahead = timed.context.start_timeout + MINUTE
        assert (continue_run(timed, run), timed.fleet.sent) == (State.EXPIRED, [])

    def test_without_the_start_timeout_check_an_old_approval_starts_a_run(
        self, timed: Harness, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "_check_is_in_time", skip_check)
        run = add_approved_run(timed)
        clock.ahead = timed.context.start_timeout + MINUTE
        assert (continue_run(timed, run), timed.fleet.sent) == (State.SUCCEEDED, SENT)

    @pytest.mark.parametrize("wrong", [-HOUR, HOUR])
    def test_wrong_process_clock_does_not_change_when_an_approval_expires(
        self, db_harness: Harness, monkeypatch: pytest.MonkeyPatch, wrong: int
    ):
        """An hour in which an approval would have run out, or be good for an hour more."""
        skew_process_clock(monkeypatch, wrong)
        run = db_harness.request(LAMP_ON)
        set_expiry(db_harness, run, HOUR // 2 if wrong > 0 else -MINUTE)
        if wrong > 0:
            assert db_harness.approve(run).state is State.SUCCEEDED
        else:
            with pytest.raises(TooLate):
                db_harness.approve(run)

    def test_without_the_database_clock_a_slow_process_clock_revives_an_approval(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(Database, "read_clock", _read_process_clock)
        run = harness.request(LAMP_ON)
        set_expiry(harness, run, -MINUTE)
        skew_process_clock(monkeypatch, -HOUR)
        assert harness.approve(run).state is State.SUCCEEDED


def skew_process_clock(monkeypatch: pytest.MonkeyPatch, microseconds: int) -> None:
    """Set the clock of this process wrong."""
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + microseconds / 1_000_000)


def _read_process_clock(_database: Database, _connection: Connection) -> int:
    return round(time.time() * 1_000_000)


def set_expiry(harness: Harness, run: Run, microseconds: int) -> None:
    with harness.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, run.id), expires_at=tx.now + microseconds)


def _skip_gate_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gate believe what was counted when people clicked, and that nothing has moved."""
    true = gate.count_approvals

    def believed(*args: object) -> ApprovalCount:
        counted = true(*args)  # pyright: ignore[reportArgumentType] - handed on as they are
        return replace(counted, ruling=replace(counted.ruling, allowed=True), missing_approvals=0)

    monkeypatch.setattr(gate, "count_approvals", believed)
    monkeypatch.setattr(gate, "_check_plan_unchanged", skip_check)
    monkeypatch.setattr(gate, "_check_host_key_unchanged", skip_check)


class TestLostRoles:
    def test_an_approval_does_not_count_when_the_approver_lost_the_role(self, harness: Harness):
        run = add_approved_run(harness)
        edit_policy_file(harness, "areas.yaml", "[olga, adam]", "[adam]")
        assert (continue_run(harness, run), harness.fleet.sent) == (State.REFUSED, [])

    def test_without_the_recount_the_approval_of_a_former_owner_counts(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        _skip_gate_checks(monkeypatch)
        run = add_approved_run(harness)
        edit_policy_file(harness, "areas.yaml", "[olga, adam]", "[adam]")
        assert (continue_run(harness, run), harness.fleet.sent) == (State.SUCCEEDED, SENT)

    def test_run_is_refused_at_the_gate_when_the_requester_lost_the_role(self, harness: Harness):
        run = add_approved_run(harness)
        lose_the_role(harness)
        assert (continue_run(harness, run), harness.fleet.sent) == (State.REFUSED, [])
        assert "may not request this any more" in harness.get_run(run.id).summary

    def test_without_the_recount_a_run_of_a_requester_without_the_role_starts(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        _skip_gate_checks(monkeypatch)
        run = add_approved_run(harness)
        lose_the_role(harness)
        assert (continue_run(harness, run), harness.fleet.sent) == (State.SUCCEEDED, SENT)


def remove_requester(harness: Harness) -> None:
    """Have the asker gone from the people."""
    edit_policy_file(harness, "people.yaml", "dora:", "dolores:")


@pytest.mark.parametrize("go", [remove_requester, lose_the_role])
class TestRoleLostDuringFanOut:
    """The requester leaves, or loses the role, during the third of ten hosts."""

    HOSTS = tuple(f"lb{n}" for n in range(1, 11))

    def _goes(self, harness: Harness, go: Callable[[Harness], None]) -> list[str]:
        edit_policy_file(
            harness, "inventory.yaml", "lb2: {area: edge, tags: [haproxy]}\n", self._more()
        )
        harness.fleet.hosts.update({host: {"lamp": "off"} for host in self.HOSTS})
        requests = [SetSwitch(host=host, name="lamp", value="on") for host in self.HOSTS]
        whole = harness.service.request_on_hosts(
            requests, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()
        harness.fleet.after_send = lambda host, _words: go(harness) if host == "lb3" else None
        harness.approve(harness.get_run(whole.id))
        return [host for host, _ in harness.fleet.sent]

    def _more(self) -> str:
        line = "  {host}: {{area: edge, tags: [haproxy]}}\n"
        return "".join(line.format(host=host) for host in self.HOSTS[1:]).removeprefix("  ")

    def test_no_further_host_is_reached_when_the_requester_loses_the_role(
        self, harness: Harness, go: Callable[[Harness], None]
    ):
        assert self._goes(harness, go) == ["lb1", "lb2", "lb3"]
        with harness.database.reading() as tx:
            parts = runs.list_children(tx, 1)
        assert [part.state for part in parts[:3]] == [State.SUCCEEDED] * 3
        # It is for the role, and not only since a file is another one.
        for part in parts[3:]:
            is_told = "may not request this any more" in part.summary
            assert (part.state, is_told) == (State.REFUSED, True), part.summary

    def test_without_the_recount_every_host_is_changed_after_the_role_is_lost(
        self, harness: Harness, go: Callable[[Harness], None], monkeypatch: pytest.MonkeyPatch
    ):
        _skip_gate_checks(monkeypatch)
        assert sorted(self._goes(harness, go)) == sorted(self.HOSTS)


class TestDenialSetBack:
    """A denied run is set back to where it was approved."""

    def _set_back(self, harness: Harness) -> Run:
        run = add_approved_run(harness)
        harness.service.deny_run(run.id, person="adam", reason="not today")
        with harness.database.transaction() as tx:
            tx.sql.execute(update(tables.run).values(state="queued"))
        harness.service.advancer.advance_run(run.id)
        return harness.get_run(run.id)

    def test_a_denial_wins_over_an_approval_until_something_is_sent(self, harness: Harness):
        assert self._set_back(harness).state in {State.DENIED, State.REFUSED}
        assert harness.fleet.sent == []

    def test_denial_row_alone_stops_a_reset_run_without_the_evidence_check(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "_check_evidence", skip_check)
        assert self._set_back(harness).state is State.DENIED
        assert harness.fleet.sent == []

    def test_without_the_gate_a_denied_run_that_was_reset_is_sent(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "authorise_run", authorise_all)
        self._set_back(harness)
        assert harness.fleet.sent == SENT


class TestApprovedPlan:
    def test_stored_plan_is_sent_when_the_runbook_changes_during_the_run(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        """Whatever the runbook would say by then: the second step is as it was approved."""

        def another(self: SetAll, _switches: Switches) -> Plan:
            return Plan("other", [Step("Other", self.host, do=undo, undo=undo)])

        undo = LAMP_ON.plan({"lamp": "off"}).steps[0].do
        harness.fleet.after_send = lambda _host, _words: monkeypatch.setattr(
            SetAll, "plan", another
        )
        run = add_approved_run(harness, SetAll(host="lb1", value="dim"))
        harness.run_queued_work()
        assert harness.fleet.sent == [("lb1", "set fan dim"), ("lb1", "set lamp dim")]
        assert run.plan

    def test_run_is_stale_when_its_runbook_changed_after_the_approval(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        run = add_approved_run(harness)
        self._changed(monkeypatch)
        assert (continue_run(harness, run), harness.fleet.sent) == (State.STALE, [])
        assert "the runbook was changed" in harness.get_run(run.id).summary

    def test_without_the_plan_check_a_changed_runbook_runs_with_the_old_approval(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "_check_plan_unchanged", skip_check)
        run = add_approved_run(harness)
        self._changed(monkeypatch)
        assert (continue_run(harness, run), harness.fleet.sent) == (State.SUCCEEDED, SENT)

    def _changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(planner, "compute_version", get_another_version)

    def test_run_is_stale_when_the_state_of_the_host_changed_after_the_approval(
        self, harness: Harness
    ):
        run = add_approved_run(harness)
        harness.fleet.hosts["lb1"]["lamp"] = "dim"
        assert (continue_run(harness, run), harness.fleet.sent) == (State.STALE, [])

    def test_without_the_plan_check_a_run_is_sent_to_a_host_that_changed(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(gate, "_check_plan_unchanged", skip_check)
        run = add_approved_run(harness)
        harness.fleet.hosts["lb1"]["lamp"] = "dim"
        assert (continue_run(harness, run), harness.fleet.sent) == (State.SUCCEEDED, SENT)


class TestLateStepResult:
    """A person resolves the run before the result of its host arrives."""

    def _settled_meanwhile(self, harness: Harness) -> Run:
        def give_up(_host: str, _words: str) -> None:
            KeyturnService(harness.context).advancer.recover_unfinished_runs()
            harness.service.resolve_run(
                run.id, person="olga", succeeded=False, reason="the lamp is off, I looked"
            )

        harness.fleet.before_send = give_up
        run = harness.request(LAMP_ON)
        return harness.approve(run)

    def test_late_step_result_does_not_overwrite_a_resolved_run(self, harness: Harness):
        ended = self._settled_meanwhile(harness)
        assert (ended.state, ended.summary[:8]) == (State.FAILED, "Resolved")

    def test_without_the_transition_check_a_late_step_result_overwrites_the_run(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        def whoevers(_self: Executor, tx: Transaction, run: Run, _hold: HeldLease) -> Run:
            return runs.lock_run(tx, run.id)

        monkeypatch.setattr(runs, "check_transition", skip_check)
        monkeypatch.setattr(Executor, "_lock_own_run", whoevers)
        assert self._settled_meanwhile(harness).state is State.SUCCEEDED


class LastGood(PolicyDirectory):
    """The guard removed: what was read last is used for as long as files do not fit."""

    good: Policy | None = None

    def get_policy(self) -> Policy:
        self.good = self.good or super().get_policy()
        return self.good


class TestInvalidPolicy:
    def test_approved_run_is_refused_when_the_policy_becomes_invalid(self, harness: Harness):
        run = add_approved_run(harness)
        edit_policy_file(harness, "policy.cedar", "permit (", "permit ((")
        assert (continue_run(harness, run), harness.fleet.sent) == (State.REFUSED, [])

    def test_with_a_cached_policy_an_approved_run_starts_despite_an_invalid_policy(
        self, harness: Harness
    ):
        policies = LastGood(harness.policies.path)
        parts = replace(harness.context, policies=policies)
        used = replace(harness, context=parts, service=KeyturnService(parts))
        run = add_approved_run(used)
        edit_policy_file(used, "policy.cedar", "permit (", "permit ((")
        assert (continue_run(used, run), used.fleet.sent) == (State.SUCCEEDED, SENT)


class TestEscalation:
    RULES = """
    @id("approve") permit (principal, action in [Action::"approve", Action::"view"], resource);
    @id("ask") @approvals("1") @from("owners") @remind("10m") @escalate("role:administrator")
    permit (principal, action == Action::"request", resource);
    """

    @pytest.fixture
    def escalating(self, tmp_path: Path, clock: Clock) -> Generator[Harness]:
        with open_harness(tmp_path, rules=self.RULES, database=clock) as harness:
            yield harness

    def test_escalation_group_is_neither_notified_nor_allowed_before_its_time(
        self, escalating: Harness, clock: Clock
    ):
        run = escalating.request(LAMP_ON)
        clock.ahead = 11 * MINUTE
        assert [len(escalating.service.advancer.remind_approvers()) for _ in range(3)] == [1, 0, 0]
        with pytest.raises(NotAllowed):
            escalating.approve(run, "stan")

    def test_without_the_reminder_check_a_run_escalates_at_once(
        self, escalating: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(reminders, "_needs_reminder", allow)
        run = escalating.request(LAMP_ON)
        assert [len(escalating.service.advancer.remind_approvers()) for _ in range(3)] == [1, 1, 1]
        assert escalating.approve(run, "stan").state is State.SUCCEEDED


def get_another_version(_runbook: object) -> str:
    return "another"


def allow(*_: object) -> bool:
    return True


class TestRateLimits:
    """Limits against a runaway script or an attacker."""

    @pytest.fixture
    def paced(self, harness: Harness) -> Harness:
        parts = replace(
            harness.context, rate_limits=RateLimits(per_person=3, per_runbook=5, in_total=7)
        )
        return replace(harness, context=parts, service=KeyturnService(parts))

    def _asks(self, harness: Harness, person: str, *, times: int = 3) -> None:
        for _ in range(times):
            harness.request(SetSwitch(host="lb1", name="lamp", value="on"), person=person)

    def test_rate_limit_refuses_requests_above_the_limit_of_a_person(self, paced: Harness):
        self._asks(paced, "dora")
        with pytest.raises(TooManyRequestsError, match="you made 3 requests within a minute"):
            self._asks(paced, "dora", times=1)
        self._asks(paced, "stan", times=1)

    def test_rate_limit_refuses_requests_above_the_limits_of_a_runbook_and_in_total(
        self, paced: Harness
    ):
        self._asks(paced, "dora")
        self._asks(paced, "stan", times=2)
        with pytest.raises(TooManyRequestsError, match="toy set was requested 5 times"):
            self._asks(paced, "adam", times=1)
        for _ in range(2):
            paced.request(ShowSwitches(host="lb1"), person="adam")
        with pytest.raises(TooManyRequestsError, match="7 requests were made"):
            paced.request(ShowSwitches(host="lb1"), person="olga")

    def test_rate_limit_is_logged_once_a_minute(self, paced: Harness):
        self._asks(paced, "dora")
        for _ in range(3):
            with pytest.raises(TooManyRequestsError):
                self._asks(paced, "dora", times=1)
        assert paced.list_entry_kinds().count("rate limited") == 1
        assert paced.list_entry_kinds().count("requested") == 3

    def test_rate_limit_never_delays_approvals_and_denials(self, paced: Harness):
        first, second = paced.request(LAMP_ON), paced.request(LAMP_ON)
        paced.request(ShowSwitches(host="lb1"))
        with pytest.raises(TooManyRequestsError):
            paced.request(ShowSwitches(host="lb1"))
        assert paced.approve(first).state is State.SUCCEEDED
        assert (
            paced.service.deny_run(second.id, person="olga", reason="not today").state
            is State.DENIED
        )

    def test_rate_limit_admits_requests_again_after_a_minute(self, timed: Harness, clock: Clock):
        parts = replace(timed.context, rate_limits=RateLimits.from_person_limit(1))
        paced = replace(timed, context=parts, service=KeyturnService(parts))
        self._asks(paced, "dora", times=1)
        clock.ahead = 61_000_000
        self._asks(paced, "dora", times=1)

    def test_without_a_rate_limit_one_person_makes_any_number_of_requests(self, harness: Harness):
        self._asks(harness, "dora", times=12)
        assert harness.list_entry_kinds().count("requested") == 12
