"""Break-glass: which checks it bypasses, what it requires, and what it never bypasses."""

from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text as sql
from sqlalchemy import update

from bot.audit import change_log, evidence
from bot.auth import sessions
from bot.db import break_glass as db_break_glass
from bot.db import tables
from bot.db.database import StoreUnavailable
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.run import RequestOrigin, RequestTerms, Run, State
from bot.model.run_states import is_on_hold
from bot.policy import cedar
from bot.queries import break_glass_rules
from bot.workflow import break_glass
from tests.bot.authenticator_app import (
    AuthenticatorApp,
    age_step_ups,
    enrol_and_step_up,
    enrol_app,
)
from tests.bot.harness import Harness, open_harness
from tests.policies import get_starter_rules
from tests.toy import BreakSwitch, SetAll, SetSwitch, ShowSwitches

# Among the web servers, so that Adam needs somebody's approval and may break glass all the same.
LAMP_ON = SetSwitch(host="web1", name="lamp", value="on")
WHY = "all customers see an error page"
HOUR = 3600


@pytest.fixture(autouse=True)
def web_server(harness: Harness) -> None:
    harness.fleet.hosts["web1"] = {"fan": "off", "lamp": "off"}


def request_lamp(harness: Harness, person: str = "adam") -> Run:
    return harness.request(LAMP_ON, person=person, reason="the cellar is dark")


def activate_with_second_factor(
    harness: Harness, run: Run, app: AuthenticatorApp, reason: str = WHY
) -> Run:
    harness.service.break_glass.activate_break_glass(
        run.id, person=app.person, session=app.session, digest=run.digest, reason=reason
    )
    harness.run_queued_work()
    return harness.get_run(run.id)


def freeze_web_servers(harness: Harness) -> None:
    """Let the web servers be frozen since yesterday, and until tomorrow."""
    now = datetime.now(UTC)
    (harness.policies.path / "freezes.yaml").write_text(
        "freezes:\n"
        "  - name: the sale\n"
        "    areas: [web]\n"
        f'    from: "{now - timedelta(days=1):%Y-%m-%d %H:%M}"\n'
        f'    until: "{now + timedelta(days=1):%Y-%m-%d %H:%M}"\n'
    )


def age_glass(harness: Harness, seconds: int) -> None:
    """Let time pass since glass was broken."""
    column = tables.break_glass.c
    past = seconds * 1_000_000
    with harness.database.transaction() as tx:
        tx.sql.execute(
            update(tables.break_glass).values(
                activated_at=column.activated_at - past, active_until=column.active_until - past
            )
        )


# --- what it goes through ---


def test_break_glass_run_starts_without_the_missing_approval(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    assert (run.state, run.required_approvals) == (State.PENDING, 1)
    assert activate_with_second_factor(harness, run, app).state is State.SUCCEEDED
    with harness.database.reading() as tx:
        entry = next(
            e
            for e in change_log.list_entries_of_run(tx, run.id)
            if e.kind == "break-glass activated"
        )
    assert (entry.person, entry.facts["reason"]) == ("adam", WHY)
    assert entry.facts["factor"] == app.factor.digest


def test_only_break_glass_runs_during_a_freeze(harness: Harness) -> None:
    freeze_web_servers(harness)
    app, run = enrol_and_step_up(harness, "olga"), request_lamp(harness, "olga")
    # The twin: the same run, which needs no approval, waits for the freeze to end.
    assert run.state is State.QUEUED
    assert is_on_hold(run)
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    assert harness.fleet.sent == []
    assert activate_with_second_factor(harness, run, app).state is State.SUCCEEDED


def test_denial_by_an_owner_is_final_under_break_glass(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    harness.service.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    harness.service.deny_run(run.id, person="olga", reason="it is being mended")
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.DENIED
    assert harness.fleet.sent == []


def test_stale_plan_is_not_applied_under_break_glass(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    harness.fleet.hosts["web1"]["lamp"] = "dim"
    assert activate_with_second_factor(harness, run, app).state is State.STALE
    assert harness.fleet.sent == []


def test_break_glass_needs_the_digest_of_the_shown_plan(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    for digest in ("", run.digest[:9], "0" * 64):
        with pytest.raises(TooLate, match="is not that of the plan"):
            harness.service.break_glass.activate_break_glass(
                run.id, person="adam", session=app.session, digest=digest, reason=WHY
            )


# --- what it takes ---


@pytest.mark.parametrize("reason", ["", "   ", "it is urgent", "x" * 19, f"{'x' * 10}{' ' * 20}"])
def test_break_glass_needs_a_reason_of_20_characters(harness: Harness, reason: str) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    with pytest.raises(InvalidRequestError, match="at least 20 characters"):
        activate_with_second_factor(harness, run, app, reason)
    with pytest.raises(InvalidRequestError, match="at least 20 characters"):
        harness.service.break_glass.request_break_glass(run.id, person="adam", reason=reason)
    assert harness.get_run(run.id).state is State.PENDING


def test_break_glass_needs_a_recent_second_factor(harness: Harness) -> None:
    app, run = enrol_app(harness, "adam"), request_lamp(harness)
    with pytest.raises(StepUpRequired):
        activate_with_second_factor(harness, run, app)
    app.step_up()
    age_step_ups(harness, sessions.STEP_UP_SECONDS)
    with pytest.raises(StepUpRequired):
        activate_with_second_factor(harness, run, app)
    assert harness.fleet.sent == []
    # The twin: the same request, with the factor shown now.
    app.step_up(later=1)
    assert activate_with_second_factor(harness, run, app).state is State.SUCCEEDED


def test_gate_refuses_break_glass_when_the_second_factor_was_removed(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    harness.service.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    app.lose()
    harness.run_queued_work()
    assert harness.get_run(run.id).state is not State.SUCCEEDED
    assert harness.fleet.sent == []


def test_break_glass_is_active_for_an_hour_at_most(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    harness.service.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    with harness.database.reading() as tx:
        pane = db_break_glass.get_break_glass(tx, run.id)
    assert pane
    assert pane.activated_at
    assert pane.active_until
    assert pane.active_until - pane.activated_at == HOUR * 1_000_000
    age_glass(harness, HOUR)
    harness.run_queued_work()
    assert harness.get_run(run.id).state is not State.SUCCEEDED
    assert harness.fleet.sent == []


def test_break_glass_that_ends_between_two_steps_fails_the_run(harness: Harness) -> None:
    app = enrol_and_step_up(harness, "adam")
    run = harness.request(SetAll(host="web1", value="on"), person="adam")
    harness.fleet.after_send = lambda _host, _words: age_glass(harness, HOUR)
    ended = activate_with_second_factor(harness, run, app)
    assert ended.state is State.FAILED
    assert len(harness.fleet.sent) == 1


@pytest.mark.parametrize("door", ["api", "cli", "schedule"])
def test_break_glass_is_refused_for_requests_by_api_cli_or_schedule(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    app = enrol_and_step_up(harness, "adam")
    asked = harness.service.request_run(LAMP_ON, RequestTerms("adam", RequestOrigin(door)))
    harness.run_queued_work()
    run = harness.get_run(asked.id)
    with pytest.raises(NotAllowed, match="not for tokens or schedules"):
        activate_with_second_factor(harness, run, app)
    with pytest.raises(NotAllowed, match="not for tokens or schedules"):
        harness.service.break_glass.request_break_glass(run.id, person="adam", reason=WHY)
    assert harness.fleet.sent == []
    # The twin: with the guard removed, it would have gone through.
    monkeypatch.setattr(break_glass_rules, "_INTERACTIVE_SOURCES", frozenset({door}))
    assert activate_with_second_factor(harness, run, app).state is State.SUCCEEDED


def test_only_the_requester_may_use_break_glass(harness: Harness) -> None:
    run = request_lamp(harness)
    for person in ("olga", "dora", "stan"):
        with pytest.raises(NotAllowed, match="only Adam Admin"):
            activate_with_second_factor(harness, run, enrol_and_step_up(harness, person))


def test_break_glass_is_refused_when_the_policy_does_not_allow_it(harness: Harness) -> None:
    dora = enrol_and_step_up(harness, "dora")
    with pytest.raises(NotAllowed, match="the policy does not allow you break-glass"):
        activate_with_second_factor(harness, request_lamp(harness, "dora"), dora)
    adam = enrol_and_step_up(harness, "adam")
    lasting = harness.request(BreakSwitch(host="web1", name="lamp"), person="adam")
    with pytest.raises(NotAllowed, match="the policy does not allow you break-glass"):
        activate_with_second_factor(harness, lasting, adam)
    check = harness.request(ShowSwitches(host="web1"), person="adam")
    with pytest.raises(TooLate):
        activate_with_second_factor(harness, check, adam)
    assert harness.fleet.sent == []


@pytest.fixture
def without_the_rule(tmp_path: Path) -> Generator[Harness]:
    text = get_starter_rules()
    begin = text.index('@id("administrators use break-glass")')
    end = text.index("};", begin) + 2
    with open_harness(tmp_path, rules=text[:begin] + text[end:]) as harness:
        harness.fleet.hosts["web1"] = {"lamp": "off"}
        yield harness


def test_break_glass_is_refused_when_the_policy_has_no_rule_for_it(
    without_the_rule: Harness,
) -> None:
    assert '"break-glass"' in cedar.SCHEMA
    run = request_lamp(without_the_rule)
    with pytest.raises(NotAllowed, match="the policy does not allow you break-glass"):
        activate_with_second_factor(
            without_the_rule, run, enrol_and_step_up(without_the_rule, "adam")
        )


def test_break_glass_does_not_count_when_the_requester_lost_the_right(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    harness.service.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    people = harness.policies.path / "people.yaml"
    people.write_text(
        people.read_text().replace(
            "Adam Admin, roles: [administrator]", "Adam Admin, roles: [developer]"
        )
    )
    harness.run_queued_work()
    assert harness.get_run(run.id).state is not State.SUCCEEDED
    assert harness.fleet.sent == []


class TestWithoutGuards:
    """The twins: what happens without each guard."""

    def test_without_the_minimum_length_break_glass_needs_no_reason(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(break_glass_rules, "MIN_REASON_LENGTH", 0)
        app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
        assert activate_with_second_factor(harness, run, app, "").state is State.SUCCEEDED

    def test_without_the_second_factor_check_break_glass_needs_only_a_sign_in(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, run = enrol_app(harness, "adam"), request_lamp(harness)
        digest = app.factor.digest
        monkeypatch.setattr(break_glass, "get_shown_factor", lambda *_, **__: digest)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        assert activate_with_second_factor(harness, run, app).state is State.SUCCEEDED

    def test_without_the_time_limit_break_glass_is_active_after_an_hour(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(break_glass, "ACTIVE_SECONDS", 2 * HOUR)
        app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
        harness.service.break_glass.activate_break_glass(
            run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
        )
        age_glass(harness, HOUR)
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED

    def test_without_the_review_check_break_glass_is_used_again_unreviewed(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(db_break_glass, "get_overdue_review", _find_none)
        monkeypatch.setattr(evidence, "get_unreviewed_run", _find_none)
        app = enrol_and_step_up(harness, "adam")
        activate_with_second_factor(harness, request_lamp(harness), app)
        age_glass(harness, 24 * HOUR + 1)
        other = harness.request(SetSwitch(host="web1", name="fan", value="on"), person="adam")
        assert activate_with_second_factor(harness, other, app).state is State.SUCCEEDED


def _find_none(*_: object) -> None: ...


# --- what follows ---


def test_break_glass_is_refused_while_an_older_use_is_not_reviewed(harness: Harness) -> None:
    app, first = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    activate_with_second_factor(harness, first, app)
    other = SetSwitch(host="web1", name="fan", value="on")
    # Within the day the next emergency is one.
    second = harness.request(other, person="adam")
    age_glass(harness, 24 * HOUR + 1)
    with pytest.raises(NotAllowed, match=f"review {first.id}"):
        activate_with_second_factor(harness, second, app)
    assert harness.list_entry_kinds(second)[-1] == "break-glass refused"
    harness.service.break_glass.review_break_glass(
        first.id, person="stan", findings="seen, and it was right"
    )
    # The twin: reviewed, it is allowed again.
    assert activate_with_second_factor(harness, second, app).state is State.SUCCEEDED
    assert "break-glass reviewed" in harness.list_entry_kinds(first)


def test_break_glass_is_allowed_again_within_a_day_without_a_review(harness: Harness) -> None:
    app, first = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    activate_with_second_factor(harness, first, app)
    age_glass(harness, 24 * HOUR - 60)
    second = harness.request(SetSwitch(host="web1", name="fan", value="on"), person="adam")
    assert activate_with_second_factor(harness, second, app).state is State.SUCCEEDED


def test_break_glass_is_reviewed_once_by_another_person_with_findings(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    review: Callable[..., object] = harness.service.break_glass.review_break_glass
    with pytest.raises(InvalidRequestError, match="needs no review"):
        review(run.id, person="stan", findings="nothing to see here")
    activate_with_second_factor(harness, run, app)
    for person in ("adam", "dora", "nobody"):
        with pytest.raises(NotAllowed):
            review(run.id, person=person, findings="seen, and it was right")
    with pytest.raises(InvalidRequestError, match="10 characters"):
        review(run.id, person="stan", findings="ok")
    review(run.id, person="olga", findings="seen, and it was right")
    with pytest.raises(TooLate, match="Olga Owner has already reviewed"):
        review(run.id, person="stan", findings="seen, and it was right")


def test_break_glass_is_refused_when_the_log_cannot_be_written(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    with harness.database.transaction() as tx:
        tx.sql.execute(
            sql(
                "CREATE TRIGGER mute BEFORE INSERT ON entry "
                "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )
        )
    with pytest.raises(StoreUnavailable):
        activate_with_second_factor(harness, run, app)
    with harness.database.transaction() as tx:
        pane = db_break_glass.get_break_glass(tx, run.id)
        tx.sql.execute(sql("DROP TRIGGER mute"))
    assert pane is None
    assert harness.fleet.sent == []
    # The twin: the same, with a log that can be written.
    assert activate_with_second_factor(harness, run, app).state is State.SUCCEEDED


def test_break_glass_is_refused_for_a_run_that_already_used_it(harness: Harness) -> None:
    app, run = enrol_and_step_up(harness, "adam"), request_lamp(harness)
    activate_with_second_factor(harness, run, app)
    with pytest.raises(TooLate):
        activate_with_second_factor(harness, run, app)
    with pytest.raises(NotAllowed, match="already active"):
        harness.service.break_glass.request_break_glass(run.id, person="adam", reason=WHY)


def test_break_glass_reason_is_normalised_to_one_line() -> None:
    assert break_glass_rules.check_break_glass_reason("  the shop\r\nis down for everybody ") == (
        "the shop is down for everybody"
    )
    with pytest.raises(InvalidRequestError):
        break_glass_rules.check_break_glass_reason("the shop is down for \u202eybodyreve")
