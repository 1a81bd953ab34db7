"""Approvals that require a second factor: which factor counts, for how long, and for whom."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.audit import change_log, evidence
from bot.auth import second_factors, sessions
from bot.auth.webauthn import RelyingParty
from bot.db import runs, tables
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.run import Decision, Run, State
from bot.model.signing import SigningKey
from bot.queries.second_factor import is_factor_valid
from bot.workflow import step_up
from tests.authenticator import Authenticator
from tests.bot.authenticator_app import age_step_ups, enrol_and_step_up, enrol_app
from tests.bot.clock import MINUTE, Clock
from tests.bot.harness import Harness, open_harness
from tests.policies import get_starter_rules
from tests.row_macs import change_rows
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
HOME = RelyingParty("keyturn.test", "https://keyturn.test")
STRICT = get_starter_rules().replace('@approvals("1")', '@approvals("1")\n@stepup', 1)


@pytest.fixture
def strict(tmp_path: Path) -> Generator[Harness]:
    """A harness in which what developers ask for takes an approval with a second factor."""
    with open_harness(tmp_path, rules=STRICT) as harness:
        yield harness


def approve(harness: Harness, number: int, digest: str, person: str, session: str = "") -> None:
    harness.service.approve_run(number, person=person, digest=digest, session=session)
    harness.run_queued_work()


# --- approvals ---


def test_approval_without_a_required_second_factor_is_refused(
    strict: Harness,
) -> None:
    run = strict.request(LAMP_ON)
    with pytest.raises(StepUpRequired, match="web page"):
        approve(strict, run.id, run.digest, "olga")
    assert strict.get_run(run.id).state is State.PENDING
    assert "approval refused" in strict.list_entry_kinds(run)
    assert strict.fleet.sent == []


def test_approval_without_a_second_factor_counts_when_no_rule_requires_one(
    harness: Harness,
) -> None:
    run = harness.request(LAMP_ON)
    approve(harness, run.id, run.digest, "olga")
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_approval_with_a_second_factor_counts_and_is_logged_with_it(strict: Harness) -> None:
    app = enrol_and_step_up(strict, "olga")
    run = strict.request(LAMP_ON)
    approve(strict, run.id, run.digest, "olga", app.session)
    assert strict.get_run(run.id).state is State.SUCCEEDED
    with strict.database.reading() as tx:
        entries = [
            entry
            for entry in change_log.list_entries_of_run(tx, run.id)
            if entry.kind == "approved"
        ]
    assert entries[0].facts["factor"] == app.factor.digest
    assert "stepped up" in strict.list_entry_kinds()


class TestForgedStepUp:
    """A session's row with a valid MAC says that a second factor was shown."""

    def _approved(self, harness: Harness) -> State:
        app, run = enrol_app(harness, "olga"), harness.request(LAMP_ON)
        with harness.database.transaction() as tx:
            shown = {"stepped_up_at": tx.now, "factor_digest": app.factor.digest}
            change_rows(tx, tables.session, lambda _row: shown)
        approve(harness, run.id, run.digest, "olga", app.session)
        return harness.get_run(run.id).state

    def test_step_up_does_not_count_when_the_log_does_not_confirm_it(
        self, strict: Harness
    ) -> None:
        with pytest.raises(StepUpRequired):
            self._approved(strict)
        assert strict.fleet.sent == []

    def test_without_the_log_a_forged_step_up_counts(
        self, strict: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(evidence, "is_stepped_up", _accept)
        assert self._approved(strict) is State.SUCCEEDED


class TestResetCodeCounter:
    """The counter of used codes is reset in the factor's row."""

    def _again(self, harness: Harness) -> None:
        app = enrol_app(harness, "olga")
        code = app.code()
        harness.service.step_up.step_up_by_code("olga", app.session, code)
        with harness.database.transaction() as tx:
            tx.sql.execute(update(tables.second_factor).values(last_counter=0))
        harness.service.step_up.step_up_by_code("olga", app.session, code)

    def test_totp_code_is_rejected_again_when_its_counter_row_was_reset(
        self, strict: Harness
    ) -> None:
        with pytest.raises(InvalidRequestError, match="was used before"):
            self._again(strict)

    def test_without_the_log_a_totp_code_is_accepted_again_after_a_reset(
        self, strict: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(step_up, "get_last_used_counter", _read_counter_from_row)
        self._again(strict)


def _read_counter_from_row(_tx: object, factor: second_factors.SecondFactor) -> int:
    return factor.last_counter


def _accept(*_: object) -> bool:
    return True


class TestSecondFactorRequiredLater:
    """Rules require a second factor after an approval was given without one."""

    RULES = """
    @id("approve") permit (principal, action in [Action::"approve", Action::"view"], resource);
    @id("ask") @approvals("1") @from("owners")
    permit (principal, action == Action::"request", resource);
    @id("night") @approvals("1") @from("owners") @stepup
    permit (principal, action == Action::"request", resource)
    when { context.now >= datetime("2100-01-01T00:00:00Z") };
    """

    @pytest.fixture
    def nightly(self, tmp_path: Path) -> Generator[tuple[Harness, Run]]:
        """A harness by night, and a run that Olga approved by day."""
        clock = Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
        with open_harness(tmp_path, rules=self.RULES, database=clock) as harness:
            with clock.reading() as tx:
                clock.ahead = 4_102_444_800_000_000 - 120 * MINUTE - tx.now
            run = harness.request(LAMP_ON)
            harness.service.approve_run(run.id, person="olga", digest=run.digest)
            clock.ahead += 120 * MINUTE
            harness.run_queued_work()
            yield harness, harness.get_run(run.id)

    def test_approver_approves_again_when_a_second_factor_became_required(
        self, nightly: tuple[Harness, Run]
    ) -> None:
        harness, run = nightly
        assert (run.state, harness.fleet.sent) == (State.PENDING, [])
        with pytest.raises(StepUpRequired):
            approve(harness, run.id, run.digest, "olga")
        app = enrol_and_step_up(harness, "olga")
        harness.service.approve_run(run.id, person="olga", digest=run.digest, session=app.session)
        with harness.database.reading() as tx:
            [vote] = runs.list_decisions(tx, run.id)
        assert vote.factor == app.factor.digest
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED
        assert harness.list_entry_kinds(run).count("approved") == 2

    def test_approval_with_a_second_factor_cannot_be_repeated(self, strict: Harness) -> None:
        app, run = enrol_and_step_up(strict, "olga"), strict.request(LAMP_ON)
        with strict.database.transaction() as tx:
            factor = app.factor.digest
            runs.add_decision(
                tx, Decision(run.id, "olga", True, run.digest, tx.now, factor=factor)
            )
        with pytest.raises(TooLate, match="You have already approved run 1"):
            approve(strict, run.id, run.digest, "olga", app.session)


def test_step_up_expires_after_five_minutes(strict: Harness) -> None:
    app = enrol_and_step_up(strict, "olga")
    run = strict.request(LAMP_ON)
    age_step_ups(strict, sessions.STEP_UP_SECONDS)
    with pytest.raises(StepUpRequired):
        approve(strict, run.id, run.digest, "olga", app.session)


def test_step_up_counts_only_in_its_session_and_for_its_person(strict: Harness) -> None:
    app = enrol_and_step_up(strict, "olga")
    with strict.database.transaction() as tx:
        elsewhere, adams = sessions.begin_session(tx, "olga"), sessions.begin_session(tx, "adam")
    run = strict.request(LAMP_ON)
    for person, session in (("olga", elsewhere), ("adam", app.session), ("adam", adams)):
        with pytest.raises(StepUpRequired):
            approve(strict, run.id, run.digest, person, session)
    approve(strict, run.id, run.digest, "olga", app.session)


def test_gate_refuses_an_approval_whose_second_factor_was_removed(strict: Harness) -> None:
    app = enrol_and_step_up(strict, "olga")
    run = strict.request(LAMP_ON)
    strict.service.approve_run(run.id, person="olga", digest=run.digest, session=app.session)
    app.lose()
    strict.run_queued_work()
    assert strict.get_run(run.id).state is not State.SUCCEEDED
    assert strict.fleet.sent == []


def test_gate_refuses_an_approval_row_without_its_second_factor(strict: Harness) -> None:
    app = enrol_and_step_up(strict, "olga")
    run = strict.request(LAMP_ON)
    strict.service.approve_run(run.id, person="olga", digest=run.digest, session=app.session)
    with strict.database.transaction() as tx:
        tx.sql.execute(update(tables.decision).values(factor=""))
    strict.run_queued_work()
    assert strict.fleet.sent == []


def test_denial_needs_no_second_factor(strict: Harness) -> None:
    run = strict.request(LAMP_ON)
    assert strict.service.deny_run(run.id, person="olga", reason="not now").state is State.DENIED


# --- codes ---


def test_totp_code_is_accepted_once(strict: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    app = enrol_app(strict, "olga")
    code = app.code()
    strict.service.step_up.step_up_by_code("olga", app.session, code)
    with pytest.raises(InvalidRequestError, match="used before"):
        strict.service.step_up.step_up_by_code("olga", app.session, code)
    # The twin: had nobody remembered the code, it would work again.
    monkeypatch.setattr(step_up, "get_last_used_counter", _never)
    strict.service.step_up.step_up_by_code("olga", app.session, code)


def _never(*_: object) -> int:
    return 0


def test_totp_is_locked_after_five_wrong_codes(strict: Harness) -> None:
    app = enrol_app(strict, "olga")
    wrong = f"{(int(app.code()) + 500_000) % 1_000_000:06}"
    for _ in range(5):
        with pytest.raises(InvalidRequestError, match="not correct"):
            strict.service.step_up.step_up_by_code("olga", app.session, wrong)
    with pytest.raises(InvalidRequestError, match="15 minutes"):
        strict.service.step_up.step_up_by_code("olga", app.session, app.code())
    assert strict.list_entry_kinds().count("step-up refused") == 5
    # Whoever guesses for one person locks nobody else out.
    enrol_and_step_up(strict, "adam")


def test_totp_code_of_another_person_is_rejected(strict: Harness) -> None:
    olgas, adams = enrol_app(strict, "olga"), enrol_app(strict, "adam")
    with pytest.raises(InvalidRequestError):
        strict.service.step_up.step_up_by_code("adam", adams.session, olgas.code())


def test_totp_secret_exchanged_in_the_database_is_rejected(strict: Harness) -> None:
    olgas, doras = enrol_app(strict, "olga"), enrol_app(strict, "dora")
    with strict.database.transaction() as tx:
        here = tables.second_factor.c.id == olgas.factor.id
        tx.sql.execute(update(tables.second_factor).where(here).values(sealed=doras.factor.sealed))
    with pytest.raises(NotAllowed, match="altered in the database"):
        strict.service.step_up.step_up_by_code("olga", olgas.session, doras.code())


# --- enrolling ---


def enrol_authenticator_app(harness: Harness, person: str) -> second_factors.SecondFactor:
    begun = harness.service.factor_enrolment.begin_app_enrolment(person)
    app = replace(
        enrol_app(harness, "stan"),
        secret=harness.service.factor_enrolment.get_app_secret(person, begun.id),
    )
    return harness.service.factor_enrolment.finish_app_enrolment(person, begun.id, app.code())


def test_factor_enrolled_from_a_stolen_chat_account_does_not_count(strict: Harness) -> None:
    begun = strict.service.factor_enrolment.begin_app_enrolment("olga")
    secret = strict.service.factor_enrolment.get_app_secret("olga", begun.id)
    app = replace(enrol_app(strict, "olga", confirmed_by=""), secret=secret)
    strict.service.factor_enrolment.finish_app_enrolment("olga", begun.id, app.code())
    with pytest.raises(NotAllowed, match="no valid second factor"):
        app.step_up(later=1)
    # The twin: confirmed by somebody else, the same code is taken.
    adam = enrol_and_step_up(strict, "adam")
    strict.service.factor_enrolment.confirm_factor(
        "adam", adam.session, begun.id, begun.digest[:10]
    )
    app.step_up(later=1)


def test_factor_named_in_people_yaml_counts_without_confirmation(strict: Harness) -> None:
    factor = enrol_authenticator_app(strict, "dora")
    people = strict.policies.path / "people.yaml"
    before = strict.policies.get_policy()
    people.write_text(
        people.read_text().replace(
            "name: Dora Developer,", f"name: Dora Developer, factors: [{factor.digest}],"
        )
    )
    with strict.database.reading() as tx:
        kept = second_factors.list_factors(tx, "dora")[0]
    assert not is_factor_valid(before, kept)
    assert is_factor_valid(strict.policies.get_policy(), kept)


def test_person_cannot_confirm_their_own_second_factor(strict: Harness) -> None:
    olga = enrol_and_step_up(strict, "olga")
    factor = enrol_authenticator_app(strict, "olga")
    with pytest.raises(NotAllowed, match="your own factor"):
        strict.service.factor_enrolment.confirm_factor(
            "olga", olga.session, factor.id, factor.digest
        )


def test_second_factor_is_confirmed_only_by_an_owner_after_step_up(strict: Harness) -> None:
    factor = enrol_authenticator_app(strict, "dora")
    olga = enrol_app(strict, "olga")
    with pytest.raises(StepUpRequired):
        strict.service.factor_enrolment.confirm_factor(
            "olga", olga.session, factor.id, factor.digest
        )
    doras = enrol_and_step_up(strict, "dora")
    other = enrol_authenticator_app(strict, "adam")
    with pytest.raises(NotAllowed, match="owner"):
        strict.service.factor_enrolment.confirm_factor(
            "dora", doras.session, other.id, other.digest
        )


def test_second_factor_is_confirmed_only_with_its_digest(strict: Harness) -> None:
    olga = enrol_and_step_up(strict, "olga")
    factor = enrol_authenticator_app(strict, "dora")
    for digest in ("", "0", factor.digest[:9], "0123456789", factor.digest[1:12]):
        with pytest.raises(InvalidRequestError, match="read them"):
            strict.service.factor_enrolment.confirm_factor("olga", olga.session, factor.id, digest)
    spaced = f"{factor.digest[:4]} {factor.digest[4:8].upper()} {factor.digest[8:12]}"
    strict.service.factor_enrolment.confirm_factor("olga", olga.session, factor.id, spaced)
    assert "factor confirmed" in strict.list_entry_kinds()


def test_totp_secret_is_shown_to_its_person_until_enrolment_ends(strict: Harness) -> None:
    begun = strict.service.factor_enrolment.begin_app_enrolment("dora")
    with pytest.raises(InvalidRequestError):
        strict.service.factor_enrolment.get_app_secret("olga", begun.id)
    enrol_authenticator_app(strict, "dora")
    with pytest.raises(InvalidRequestError):
        strict.service.factor_enrolment.get_app_secret("dora", begun.id)


def test_second_factor_is_removed_by_its_person_or_an_owner(strict: Harness) -> None:
    adams = enrol_app(strict, "adam")
    with pytest.raises(NotAllowed):
        strict.service.factor_enrolment.remove_factor("dora", adams.factor.id)
    strict.service.factor_enrolment.remove_factor("olga", adams.factor.id)
    with pytest.raises(NotAllowed):
        adams.step_up()
    assert "factor removed" in strict.list_entry_kinds()


def test_person_can_enrol_at_most_five_second_factors(strict: Harness) -> None:
    for _ in range(5):
        enrol_app(strict, "dora")
    with pytest.raises(InvalidRequestError, match="remove one"):
        strict.service.factor_enrolment.begin_app_enrolment("dora")


# --- keys ---


def test_security_key_is_enrolled_confirmed_and_used_to_approve(strict: Harness) -> None:
    flow = strict.service
    device, olga = Authenticator(HOME.origin), enrol_and_step_up(strict, "olga")
    with strict.database.transaction() as tx:
        session = sessions.begin_session(tx, "adam")
    answer = device.enrol(flow.factor_enrolment.begin_key_enrolment("adam", session, HOME))
    factor = flow.factor_enrolment.finish_key_enrolment("adam", session, HOME, answer)
    flow.factor_enrolment.confirm_factor("olga", olga.session, factor.id, factor.digest)

    signed = device.sign(flow.step_up.create_key_challenge("adam", session, HOME))
    flow.step_up.step_up_by_key("adam", session, HOME, signed)
    run = strict.request(LAMP_ON)
    approve(strict, run.id, run.digest, "adam", session)
    assert strict.get_run(run.id).state is State.SUCCEEDED

    # What was signed once proves nothing again.
    with pytest.raises(InvalidRequestError):
        flow.step_up.step_up_by_key("adam", session, HOME, signed)
    # And a question of another session is not this one's.
    with strict.database.transaction() as tx:
        other = sessions.begin_session(tx, "adam")
    signed = device.sign(flow.step_up.create_key_challenge("adam", other, HOME))
    with pytest.raises(InvalidRequestError):
        flow.step_up.step_up_by_key("adam", session, HOME, signed)


def test_unconfirmed_security_key_does_not_count(strict: Harness) -> None:
    flow, device = strict.service, Authenticator(HOME.origin)
    with strict.database.transaction() as tx:
        session = sessions.begin_session(tx, "adam")
    answer = device.enrol(flow.factor_enrolment.begin_key_enrolment("adam", session, HOME))
    flow.factor_enrolment.finish_key_enrolment("adam", session, HOME, answer)
    with pytest.raises(NotAllowed, match="no valid second factor"):
        flow.step_up.create_key_challenge("adam", session, HOME)
