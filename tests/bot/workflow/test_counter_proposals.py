"""Other values: an approver proposes them, the asker accepts, and somebody else approves."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.db import runs
from bot.db.database import Database
from bot.db.runs import ConcurrentUpdateError, NoSuchRun
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.redaction import Redactor
from bot.model.run import Run, State
from bot.model.signing import SigningKey
from bot.policy import PolicyRequest
from tests.bot.office import WEB, Office, an_office
from tests.policies import starter_rules
from tests.toy import SetSwitch

TWO_APPROVALS = starter_rules().replace('@approvals("1")', '@approvals("2")')
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def counter(office: Office, run: Run, person: str = "olga", **changes: str) -> Run:
    new = office.workflow.propose_values(
        run.id, person=person, changed_values=changes, reason="too bright"
    )
    office.work()
    return office.run(new.id)


def accept(office: Office, run: Run, person: str = "dora") -> Run:
    office.workflow.accept_proposal(run.id, person=person, digest=run.digest)
    office.work()
    return office.run(run.id)


def test_the_asker_accepts_and_another_approves_that_very_plan(any_office: Office):
    office = any_office
    first = office.ask(LAMP_ON, reason="the cellar is dark")
    offered = counter(office, first, value="dim")
    assert office.run(first.id).state is State.PENDING
    assert (offered.state, offered.requested_by, offered.editors) == (
        State.COUNTER_PROPOSED,
        "dora",
        ("olga",),
    )
    assert (offered.proposal_for, offered.reason) == (first.id, "the cellar is dark")
    assert offered.title == "toy set lb1 lamp dim"
    assert offered.digest != first.digest
    accepted = accept(office, offered)
    assert (accepted.state, accepted.digest) == (State.PENDING, offered.digest)
    replaced = office.run(first.id)
    assert (replaced.state, replaced.summary) == (
        State.SUPERSEDED,
        "Superseded by run 2, which has other values",
    )
    with pytest.raises(TooLate):
        office.approve(first, "adam")
    done = office.approve(accepted, "adam")
    assert done.state is State.SUCCEEDED
    assert office.fleet.told == [("lb1", "set lamp dim")]


def test_both_digests_and_who_edited_what_are_logged(office: Office):
    first = office.ask(LAMP_ON)
    offered = counter(office, first, value="dim")
    accept(office, offered)
    with office.database.reading() as tx:
        old = {entry.kind: entry for entry in change_log.list_entries_of_run(tx, first.id)}
        new = {entry.kind: entry for entry in change_log.list_entries_of_run(tx, offered.id)}
    assert old["counter-proposed"].person == "olga"
    assert old["counter-proposed"].facts == {
        "digest": first.digest,
        "proposal": offered.id,
        "values": {"value": "on → dim"},
        "reason": "too bright",
    }
    assert new["proposed"].person == "olga"
    assert new["proposed"].facts["original_digest"] == first.digest
    assert new["planned"].facts["digest"] == offered.digest
    assert new["accepted"].person == "dora"
    assert new["accepted"].facts["digest"] == offered.digest


def test_who_edited_it_does_not_approve_it(office: Office):
    accepted = accept(office, counter(office, office.ask(LAMP_ON), value="dim"))
    for person in ("olga", "dora"):
        with pytest.raises(NotAllowed):
            office.approve(accepted, person)
    assert office.fleet.told == []


def _asked(request: PolicyRequest, person: str) -> bool:
    return person == request.requested_by


def test_without_the_guard_the_editor_would_have_approved_their_own_values(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    """The twin: were only the asker excluded, one person would have chosen and approved."""
    monkeypatch.setattr(PolicyRequest, "is_made_by", _asked)
    accepted = accept(office, counter(office, office.ask(LAMP_ON), value="dim"))
    assert office.approve(accepted, "olga").state is State.SUCCEEDED


def test_an_editors_no_still_ends_it(office: Office):
    offered = counter(office, office.ask(LAMP_ON), value="dim")
    assert office.workflow.deny_run(offered.id, person="olga").state is State.DENIED


def test_nothing_is_approved_before_the_asker_accepted(office: Office):
    offered = counter(office, office.ask(LAMP_ON), value="dim")
    with pytest.raises(TooLate):
        office.approve(offered, "adam")
    with pytest.raises(NotAllowed, match="only Dora Developer"):
        accept(office, offered, "adam")
    assert office.fleet.told == []


def test_the_original_stays_pending_when_its_requester_declines(any_office: Office):
    office = any_office
    first = office.ask(LAMP_ON)
    offered = counter(office, first, value="dim")
    declined = office.workflow.withdraw_run(offered.id, person="dora")
    assert (declined.state, declined.summary) == (State.WITHDRAWN, "Declined by the requester")
    with pytest.raises(TooLate):
        accept(office, offered)
    assert office.approve(office.run(first.id), "olga").state is State.SUCCEEDED
    assert office.fleet.told == [("lb1", "set lamp on")]


def test_the_original_stays_pending_when_the_proposal_is_denied(office: Office):
    first = office.ask(LAMP_ON)
    offered = counter(office, first, value="dim")
    office.workflow.deny_run(offered.id, person="adam", reason="too dim")
    assert office.run(first.id).state is State.PENDING
    assert office.approve(first, "adam").state is State.SUCCEEDED


def test_approvals_of_the_original_count_while_a_proposal_is_open(tmp_path: Path):
    with an_office(tmp_path, rules=TWO_APPROVALS) as office:
        areas = office.policies.path / "areas.yaml"
        areas.write_text(areas.read_text().replace("[olga, adam]", "[olga, adam, stan]"))
        first = office.ask(LAMP_ON)
        assert office.approve(first, "adam").state is State.PENDING
        offered = counter(office, first, value="dim")
        assert offered.state is State.COUNTER_PROPOSED
        office.workflow.withdraw_run(offered.id, person="dora")
        assert office.approve(first, "olga").state is State.SUCCEEDED


def _approve(office: Office, run: Run) -> None:
    office.approve(run, "adam")


def _deny(office: Office, run: Run) -> None:
    office.workflow.deny_run(run.id, person="adam")


def _withdraw(office: Office, run: Run) -> None:
    office.workflow.withdraw_run(run.id, person="dora")


def _expire(office: Office, run: Run) -> None:
    with office.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, run.id), expires_at=tx.now)


@pytest.mark.parametrize("decide", [_approve, _deny, _withdraw, _expire])
@pytest.mark.parametrize("many", [False, True], ids=["one host", "several hosts"])
def test_the_proposal_ends_when_the_original_is_decided(
    any_office: Office, decide: Callable[[Office, Run], None], many: bool
):
    office = any_office
    if many:
        requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
        first = office.workflow.request_fanout_run(
            requests, host_pattern="lb*", person="dora", origin=WEB
        )
        office.work()
        first = office.run(first.id)
    else:
        first = office.ask(LAMP_ON)
    offered = counter(office, first, value="dim")
    decide(office, first)
    told = list(office.fleet.told)
    # At once, before anybody has looked what is due.
    with pytest.raises(TooLate, match="not pending"):
        accept(office, offered)
    office.workflow.expire_runs()
    ended = office.run(offered.id)
    assert ended.state is State.WITHDRAWN
    assert ended.summary.startswith(f"The original request, run {first.id}, is ")
    with office.database.reading() as tx:
        assert not [part for part in runs.list_children(tx, offered.id) if not part.is_ended]
    assert office.fleet.told == told
    # Once is enough.
    assert office.workflow.expire_runs() == []


def test_of_two_proposals_the_accepted_one_replaces_the_original_and_ends_the_other(
    any_office: Office,
):
    office = any_office
    first = office.ask(LAMP_ON)
    dim = counter(office, first, "olga", value="dim")
    dark = counter(office, first, "adam", value="dark")
    assert (dim.state, dark.state) == (State.COUNTER_PROPOSED, State.COUNTER_PROPOSED)
    assert accept(office, dark).state is State.PENDING
    assert office.run(first.id).state is State.SUPERSEDED
    with pytest.raises(TooLate, match="is superseded"):
        accept(office, dim)
    office.workflow.expire_runs()
    assert office.run(dim.id).state is State.WITHDRAWN
    assert office.approve(dark, "olga").state is State.SUCCEEDED
    assert office.fleet.told == [("lb1", "set lamp dark")]


def test_a_proposal_lasts_no_longer_than_the_original(office: Office):
    first = office.ask(LAMP_ON)
    with office.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, first.id), expires_at=tx.now + 60_000_000)
    offered = counter(office, first, value="dim")
    assert offered.expires_at == office.run(first.id).expires_at


def test_a_proposal_of_another_policy_is_not_accepted(office: Office):
    first = office.ask(LAMP_ON)
    offered = counter(office, first, value="dim")
    rules = office.policies.path / "policy.cedar"
    rules.write_text(rules.read_text() + "\n// Another version.\n")
    with pytest.raises(TooLate, match="earlier policy"):
        accept(office, offered)
    assert office.run(first.id).state is State.PENDING


@pytest.mark.parametrize("attempt", range(5))
def test_accepting_and_approving_at_the_same_moment_lets_one_of_them_win(
    any_office: Office, attempt: int
):
    office, flow = any_office, any_office.workflow
    first = office.ask(LAMP_ON)
    offered = counter(office, first, value="dim")
    barrier, noes = threading.Barrier(2), list[Exception]()

    def at_once(act: Callable[[], object]) -> None:
        barrier.wait()
        try:
            act()
        except (TooLate, ConcurrentUpdateError) as no:
            noes.append(no)

    acts: list[Callable[[], object]] = [
        lambda: flow.approve_run(first.id, person="adam", digest=first.digest),
        lambda: flow.accept_proposal(offered.id, person="dora", digest=offered.digest),
    ]
    # Neither always has the start.
    threads = [
        threading.Thread(target=at_once, args=(act,)) for act in acts[:: 1 - 2 * (attempt % 2)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(noes) == 1
    flow.expire_runs()
    after = office.run(offered.id)
    if after.state is State.PENDING:
        assert office.run(first.id).state is State.SUPERSEDED
        office.approve(after, "adam")
    office.work()
    assert len(office.fleet.told) == 1


def test_an_offer_that_nobody_answers_expires(office: Office):
    offered = counter(office, office.ask(LAMP_ON), value="dim")
    with office.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, offered.id), expires_at=tx.now)
    with pytest.raises(TooLate):
        accept(office, offered)
    office.workflow.expire_runs()
    assert office.run(offered.id).state is State.EXPIRED


def test_while_there_is_no_plan_to_offer_the_request_goes_on_waiting(office: Office):
    first = office.ask(LAMP_ON)
    useless = counter(office, first, value="off")
    assert useless.state is State.NO_CHANGES
    assert office.run(first.id).state is State.PENDING
    assert office.approve(first, "olga").state is State.SUCCEEDED


def test_what_was_decided_meanwhile_is_not_replaced(office: Office):
    first = office.ask(LAMP_ON)
    new = office.workflow.propose_values(first.id, person="olga", changed_values={"value": "dim"})
    office.workflow.approve_run(first.id, person="adam", digest=first.digest)
    office.work()
    assert office.run(first.id).state is State.SUCCEEDED
    ended = office.run(new.id)
    assert (ended.state, ended.summary) == (State.WITHDRAWN, f"Run {first.id} is queued already")


def test_it_can_be_edited_again_by_another(office: Office):
    areas = office.policies.path / "areas.yaml"
    areas.write_text(areas.read_text().replace("[olga, adam]", "[olga, adam, stan]"))
    once = accept(office, counter(office, office.ask(LAMP_ON), value="dim"))
    twice = accept(office, counter(office, once, "adam", value="dark"))
    assert twice.editors == ("olga", "adam")
    with pytest.raises(NotAllowed):
        office.approve(twice, "olga")
    assert office.approve(twice, "stan").state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("person", "changes", "why"),
    [
        ("stan", {"value": "dim"}, "Those who can"),
        ("dora", {"value": "dim"}, "you requested it"),
        ("olga", {"value": "on"}, "values of run 1"),
        ("olga", {"host": "lb2"}, "has no value host: .* name, value"),
        ("olga", {"colour": "red"}, "has no value colour"),
        ("olga", {"value": ""}, "value: is missing"),
        ("olga", {}, "you can change these values of toy set: name, value"),
    ],
)
def test_what_makes_no_sense_is_refused(
    office: Office, person: str, changes: dict[str, str], why: str
):
    run = office.ask(LAMP_ON)
    with pytest.raises((InvalidRequestError, NotAllowed), match=why):
        counter(office, run, person, **changes)
    assert office.run(run.id).state is State.PENDING


def test_who_alone_could_approve_is_told_that_nobody_would_be_left(office: Office):
    areas = office.policies.path / "areas.yaml"
    areas.write_text(areas.read_text().replace("[olga, adam]", "[olga]"))
    run = office.ask(LAMP_ON)
    with pytest.raises(InvalidRequestError, match="you cannot approve them"):
        counter(office, run, value="dim")


def test_a_request_for_several_hosts_is_edited_on_each(office: Office):
    requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    whole = office.workflow.request_fanout_run(
        requests, host_pattern="lb*", person="dora", origin=WEB
    )
    office.work()
    offered = counter(office, office.run(whole.id), value="dim")
    assert (offered.state, offered.title) == (State.COUNTER_PROPOSED, "toy set lb* lamp dim")
    done = office.approve(accept(office, offered), "adam")
    assert done.state is State.SUCCEEDED
    assert office.fleet.told == [("lb1", "set lamp dim"), ("lb2", "set lamp dim")]


def test_an_undo_and_what_is_over_cannot_be_edited(office: Office):
    done = office.approve(office.ask(LAMP_ON))
    undo = office.workflow.request_undo(done.id, person="dora", origin=WEB)
    office.work()
    with pytest.raises(InvalidRequestError, match="an undo"):
        counter(office, undo, value="dim")
    with pytest.raises(TooLate):
        counter(office, done, value="dim")


def test_a_secret_among_the_values_is_not_recorded(tmp_path: Path):
    secret = "Canary-of-ours-0123456789"
    store = Database(
        f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create(), Redactor([secret])
    )
    with an_office(tmp_path, database=store) as office:
        run = office.ask(LAMP_ON)
        with pytest.raises(InvalidRequestError, match="contains a password"):
            counter(office, run, value=secret)
        # What is typed by mistake is on no page: the twin is what is no secret.
        assert counter(office, run, value="dim").values["value"] == "dim"
        with pytest.raises(NoSuchRun):
            office.run(run.id + 2)
