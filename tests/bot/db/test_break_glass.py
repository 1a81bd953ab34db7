"""Broken glass: what it goes through, what it takes, and what it never passes."""

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
from bot.model.run import RequestOrigin, Run, State
from bot.policy import cedar
from bot.queries import break_glass_rules
from bot.workflow import break_glass
from tests.bot.keyring import App, age_step_ups, an_app, stepped_up
from tests.bot.office import Office, an_office
from tests.policies import starter_rules
from tests.toy import BreakSwitch, SetAll, SetSwitch, ShowSwitches

# Among the web servers, so that Adam needs somebody's approval and may break glass all the same.
LAMP_ON = SetSwitch(host="web1", name="lamp", value="on")
WHY = "all customers see an error page"
HOUR = 3600


@pytest.fixture(autouse=True)
def web_server(office: Office) -> None:
    office.fleet.hosts["web1"] = {"fan": "off", "lamp": "off"}


def wanted(office: Office, person: str = "adam") -> Run:
    return office.ask(LAMP_ON, person=person, reason="the cellar is dark")


def shatter(office: Office, run: Run, app: App, reason: str = WHY) -> Run:
    office.workflow.break_glass.activate_break_glass(
        run.id, person=app.person, session=app.session, digest=run.digest, reason=reason
    )
    office.work()
    return office.run(run.id)


def freeze(office: Office) -> None:
    """Let the web servers be frozen since yesterday, and until tomorrow."""
    now = datetime.now(UTC)
    (office.policies.path / "freezes.yaml").write_text(
        "freezes:\n"
        "  - name: the sale\n"
        "    areas: [web]\n"
        f'    from: "{now - timedelta(days=1):%Y-%m-%d %H:%M}"\n'
        f'    until: "{now + timedelta(days=1):%Y-%m-%d %H:%M}"\n'
    )


def age_glass(office: Office, seconds: int) -> None:
    """Let time pass since glass was broken."""
    column = tables.break_glass.c
    past = seconds * 1_000_000
    with office.database.transaction() as tx:
        tx.sql.execute(
            update(tables.break_glass).values(
                activated_at=column.activated_at - past, active_until=column.active_until - past
            )
        )


# --- what it goes through ---


def test_broken_glass_goes_without_the_approval_that_is_missing(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    assert (run.state, run.required_approvals) == (State.PENDING, 1)
    assert shatter(office, run, app).state is State.SUCCEEDED
    with office.database.reading() as tx:
        told = next(
            e
            for e in change_log.list_entries_of_run(tx, run.id)
            if e.kind == "break-glass activated"
        )
    assert (told.person, told.facts["reason"]) == ("adam", WHY)
    assert told.facts["factor"] == app.factor.digest


def test_only_broken_glass_goes_through_a_freeze(office: Office) -> None:
    freeze(office)
    app, run = stepped_up(office, "olga"), wanted(office, "olga")
    # The twin: the same run, which needs no approval, waits for the freeze to end.
    assert run.state is State.QUEUED
    assert "frozen until" in run.summary
    office.workflow.wake_stalled_runs()
    office.work()
    assert office.fleet.told == []
    assert shatter(office, run, app).state is State.SUCCEEDED


def test_an_owners_no_is_final_all_the_same(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    office.workflow.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    office.workflow.deny_run(run.id, person="olga", reason="it is being mended")
    office.work()
    assert office.run(run.id).state is State.DENIED
    assert office.fleet.told == []


def test_a_plan_that_went_stale_is_not_applied_through_broken_glass(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    office.fleet.hosts["web1"]["lamp"] = "dim"
    assert shatter(office, run, app).state is State.STALE
    assert office.fleet.told == []


def test_glass_is_broken_for_the_plan_that_was_on_the_page(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    for digest in ("", run.digest[:9], "0" * 64):
        with pytest.raises(TooLate, match="a new plan"):
            office.workflow.break_glass.activate_break_glass(
                run.id, person="adam", session=app.session, digest=digest, reason=WHY
            )


# --- what it takes ---


@pytest.mark.parametrize("reason", ["", "   ", "it is urgent", "x" * 19, f"{'x' * 10}{' ' * 20}"])
def test_it_takes_a_reason_of_twenty_characters(office: Office, reason: str) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    with pytest.raises(InvalidRequestError, match="at least 20 characters"):
        shatter(office, run, app, reason)
    with pytest.raises(InvalidRequestError, match="at least 20 characters"):
        office.workflow.break_glass.request_break_glass(run.id, person="adam", reason=reason)
    assert office.run(run.id).state is State.PENDING


def test_it_takes_a_second_factor_shown_just_before(office: Office) -> None:
    app, run = an_app(office, "adam"), wanted(office)
    with pytest.raises(StepUpRequired):
        shatter(office, run, app)
    app.step_up()
    age_step_ups(office, sessions.STEP_UP_SECONDS)
    with pytest.raises(StepUpRequired):
        shatter(office, run, app)
    assert office.fleet.told == []
    # The twin: the same request, with the factor shown now.
    app.step_up(later=1)
    assert shatter(office, run, app).state is State.SUCCEEDED


def test_the_gate_looks_again_whether_the_factor_counts(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    office.workflow.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    app.lose()
    office.work()
    assert office.run(run.id).state is not State.SUCCEEDED
    assert office.fleet.told == []


def test_it_is_open_for_an_hour_at_most(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    office.workflow.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    with office.database.reading() as tx:
        pane = db_break_glass.get_break_glass(tx, run.id)
    assert pane
    assert pane.activated_at
    assert pane.active_until
    assert pane.active_until - pane.activated_at == HOUR * 1_000_000
    age_glass(office, HOUR)
    office.work()
    assert office.run(run.id).state is not State.SUCCEEDED
    assert office.fleet.told == []


def test_it_closes_between_two_steps(office: Office) -> None:
    app = stepped_up(office, "adam")
    run = office.ask(SetAll(host="web1", value="on"), person="adam")
    office.fleet.after_tell = lambda _host, _words: age_glass(office, HOUR)
    ended = shatter(office, run, app)
    assert ended.state is State.FAILED
    assert len(office.fleet.told) == 1


@pytest.mark.parametrize("door", ["api", "cli", "schedule"])
def test_no_token_and_no_schedule_breaks_glass(
    office: Office, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    app = stepped_up(office, "adam")
    asked = office.workflow.request_run(LAMP_ON, person="adam", origin=RequestOrigin(door))
    office.work()
    run = office.run(asked.id)
    with pytest.raises(NotAllowed, match="not for tokens or schedules"):
        shatter(office, run, app)
    with pytest.raises(NotAllowed, match="not for tokens or schedules"):
        office.workflow.break_glass.request_break_glass(run.id, person="adam", reason=WHY)
    assert office.fleet.told == []
    # The twin: with the guard removed, it would have gone through.
    monkeypatch.setattr(break_glass_rules, "_INTERACTIVE_SOURCES", frozenset({door}))
    assert shatter(office, run, app).state is State.SUCCEEDED


def test_only_the_requester_breaks_the_glass(office: Office) -> None:
    run = wanted(office)
    for person in ("olga", "dora", "stan"):
        with pytest.raises(NotAllowed, match="only Adam Admin"):
            shatter(office, run, stepped_up(office, person))


def test_the_rules_say_who_breaks_glass_and_for_what(office: Office) -> None:
    dora = stepped_up(office, "dora")
    with pytest.raises(NotAllowed, match="the policy does not allow you break-glass"):
        shatter(office, wanted(office, "dora"), dora)
    adam = stepped_up(office, "adam")
    lasting = office.ask(BreakSwitch(host="web1", name="lamp"), person="adam")
    with pytest.raises(NotAllowed, match="the policy does not allow you break-glass"):
        shatter(office, lasting, adam)
    check = office.ask(ShowSwitches(host="web1"), person="adam")
    with pytest.raises(TooLate):
        shatter(office, check, adam)
    assert office.fleet.told == []


@pytest.fixture
def without_the_rule(tmp_path: Path) -> Generator[Office]:
    text = starter_rules()
    begin = text.index('@id("administrators use break-glass")')
    end = text.index("};", begin) + 2
    with an_office(tmp_path, rules=text[:begin] + text[end:]) as office:
        office.fleet.hosts["web1"] = {"lamp": "off"}
        yield office


def test_break_glass_is_refused_without_a_rule(without_the_rule: Office) -> None:
    assert '"break-glass"' in cedar.SCHEMA
    run = wanted(without_the_rule)
    with pytest.raises(NotAllowed, match="the policy does not allow you break-glass"):
        shatter(without_the_rule, run, stepped_up(without_the_rule, "adam"))


def test_who_loses_the_right_loses_it_before_the_start(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    office.workflow.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
    )
    people = office.policies.path / "people.yaml"
    people.write_text(
        people.read_text().replace(
            "Adam Admin, roles: [administrator]", "Adam Admin, roles: [developer]"
        )
    )
    office.work()
    assert office.run(run.id).state is not State.SUCCEEDED
    assert office.fleet.told == []


class TestGuards:
    """The twins: each guard taken away, and what it keeps off happens."""

    def test_without_the_guard_no_reason_would_do(
        self, office: Office, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(break_glass_rules, "MIN_REASON_LENGTH", 0)
        app, run = stepped_up(office, "adam"), wanted(office)
        assert shatter(office, run, app, "").state is State.SUCCEEDED

    def test_without_the_guard_a_sign_in_would_do(
        self, office: Office, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, run = an_app(office, "adam"), wanted(office)
        digest = app.factor.digest
        monkeypatch.setattr(break_glass, "get_shown_factor", lambda *_, **__: digest)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        assert shatter(office, run, app).state is State.SUCCEEDED

    def test_without_the_guard_it_would_be_open_after_an_hour(
        self, office: Office, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(break_glass, "ACTIVE_SECONDS", 2 * HOUR)
        app, run = stepped_up(office, "adam"), wanted(office)
        office.workflow.break_glass.activate_break_glass(
            run.id, person="adam", session=app.session, digest=run.digest, reason=WHY
        )
        age_glass(office, HOUR)
        office.work()
        assert office.run(run.id).state is State.SUCCEEDED

    def test_break_glass_would_go_unreviewed_without_the_guard(
        self, office: Office, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(db_break_glass, "get_overdue_review", _none)
        monkeypatch.setattr(evidence, "get_unreviewed_run", _none)
        app = stepped_up(office, "adam")
        shatter(office, wanted(office), app)
        age_glass(office, 24 * HOUR + 1)
        other = office.ask(SetSwitch(host="web1", name="fan", value="on"), person="adam")
        assert shatter(office, other, app).state is State.SUCCEEDED


def _none(*_: object) -> None: ...


# --- what follows ---


def test_break_glass_is_refused_until_another_person_reviewed_the_last(office: Office) -> None:
    app, first = stepped_up(office, "adam"), wanted(office)
    shatter(office, first, app)
    other = SetSwitch(host="web1", name="fan", value="on")
    # Within the day the next emergency is one.
    second = office.ask(other, person="adam")
    age_glass(office, 24 * HOUR + 1)
    with pytest.raises(NotAllowed, match=f"review {first.id}"):
        shatter(office, second, app)
    assert office.entries(second)[-1] == "break-glass refused"
    office.workflow.break_glass.review_break_glass(
        first.id, person="stan", findings="seen, and it was right"
    )
    # The twin: reviewed, it is allowed again.
    assert shatter(office, second, app).state is State.SUCCEEDED
    assert "break-glass reviewed" in office.entries(first)


def test_within_the_day_the_next_emergency_is_one(office: Office) -> None:
    app, first = stepped_up(office, "adam"), wanted(office)
    shatter(office, first, app)
    age_glass(office, 24 * HOUR - 60)
    second = office.ask(SetSwitch(host="web1", name="fan", value="on"), person="adam")
    assert shatter(office, second, app).state is State.SUCCEEDED


def test_it_is_reviewed_once_by_another_person_in_words(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    review: Callable[..., object] = office.workflow.break_glass.review_break_glass
    with pytest.raises(InvalidRequestError, match="break-glass was not used"):
        review(run.id, person="stan", findings="nothing to see here")
    shatter(office, run, app)
    for person in ("adam", "dora", "nobody"):
        with pytest.raises(NotAllowed):
            review(run.id, person=person, findings="seen, and it was right")
    with pytest.raises(InvalidRequestError, match="10 characters"):
        review(run.id, person="stan", findings="ok")
    review(run.id, person="olga", findings="seen, and it was right")
    with pytest.raises(TooLate, match="Olga Owner has already reviewed"):
        review(run.id, person="stan", findings="seen, and it was right")


def test_break_glass_is_refused_when_the_log_cannot_be_written(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    with office.database.transaction() as tx:
        tx.sql.execute(
            sql(
                "CREATE TRIGGER mute BEFORE INSERT ON entry "
                "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )
        )
    with pytest.raises(StoreUnavailable):
        shatter(office, run, app)
    with office.database.transaction() as tx:
        pane = db_break_glass.get_break_glass(tx, run.id)
        tx.sql.execute(sql("DROP TRIGGER mute"))
    assert pane is None
    assert office.fleet.told == []
    # The twin: the same, with a log that can be written.
    assert shatter(office, run, app).state is State.SUCCEEDED


def test_glass_is_broken_once_for_a_run_and_not_for_one_that_is_over(office: Office) -> None:
    app, run = stepped_up(office, "adam"), wanted(office)
    shatter(office, run, app)
    with pytest.raises(TooLate):
        shatter(office, run, app)
    with pytest.raises(NotAllowed, match="already active"):
        office.workflow.break_glass.request_break_glass(run.id, person="adam", reason=WHY)


def test_a_reason_may_have_lines_on_the_page_and_is_one_in_the_log() -> None:
    assert break_glass_rules.check_break_glass_reason("  the shop\r\nis down for everybody ") == (
        "the shop is down for everybody"
    )
    with pytest.raises(InvalidRequestError):
        break_glass_rules.check_break_glass_reason("the shop is down for \u202eybodyreve")
