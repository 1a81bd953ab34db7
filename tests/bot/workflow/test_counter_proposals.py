"""Counter-proposals: an approver proposes values, the requester accepts, another approves."""

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
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.policy import PolicyRequest
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import get_starter_rules
from tests.toy import SetSwitch

TWO_APPROVALS = get_starter_rules().replace('@approvals("1")', '@approvals("2")')
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def make_counter_proposal(harness: Harness, run: Run, person: str = "olga", **changes: str) -> Run:
    new = harness.service.propose_values(
        run.id, person=person, changed_values=changes, reason="too bright"
    )
    harness.run_queued_work()
    return harness.get_run(new.id)


def accept(harness: Harness, run: Run, person: str = "dora") -> Run:
    harness.service.accept_proposal(run.id, person=person, digest=run.digest)
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_counter_proposal_is_accepted_by_the_requester_and_approved_by_another(
    db_harness: Harness,
):
    harness = db_harness
    first = harness.request(LAMP_ON, reason="the cellar is dark")
    offered = make_counter_proposal(harness, first, value="dim")
    assert harness.get_run(first.id).state is State.PENDING
    assert (offered.state, offered.requested_by, offered.editors) == (
        State.COUNTER_PROPOSED,
        "dora",
        ("olga",),
    )
    assert (offered.proposal_for, offered.reason) == (first.id, "the cellar is dark")
    assert offered.title == "toy set lb1 lamp dim"
    assert offered.digest != first.digest
    accepted = accept(harness, offered)
    assert (accepted.state, accepted.digest) == (State.PENDING, offered.digest)
    replaced = harness.get_run(first.id)
    assert (replaced.state, replaced.summary) == (
        State.SUPERSEDED,
        "Run 2 replaces it with other values",
    )
    with pytest.raises(TooLate):
        harness.approve(first, "adam")
    done = harness.approve(accepted, "adam")
    assert done.state is State.SUCCEEDED
    assert harness.fleet.sent == [("lb1", "set lamp dim")]


def test_counter_proposal_is_logged_with_both_digests_and_its_editor(harness: Harness):
    first = harness.request(LAMP_ON)
    offered = make_counter_proposal(harness, first, value="dim")
    accept(harness, offered)
    with harness.database.reading() as tx:
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


def test_editor_of_a_counter_proposal_cannot_approve_it(harness: Harness):
    accepted = accept(
        harness, make_counter_proposal(harness, harness.request(LAMP_ON), value="dim")
    )
    for person in ("olga", "dora"):
        with pytest.raises(NotAllowed):
            harness.approve(accepted, person)
    assert harness.fleet.sent == []


def _is_requester(request: PolicyRequest, person: str) -> bool:
    return person == request.requested_by


def test_without_the_editor_check_the_editor_approves_their_own_values(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin: were only the asker excluded, one person would have chosen and approved."""
    monkeypatch.setattr(PolicyRequest, "is_made_by", _is_requester)
    accepted = accept(
        harness, make_counter_proposal(harness, harness.request(LAMP_ON), value="dim")
    )
    assert harness.approve(accepted, "olga").state is State.SUCCEEDED


def test_editor_of_a_counter_proposal_may_deny_it(harness: Harness):
    offered = make_counter_proposal(harness, harness.request(LAMP_ON), value="dim")
    assert (
        harness.service.deny_run(offered.id, person="olga", reason="not today").state
        is State.DENIED
    )


def test_counter_proposal_cannot_be_approved_before_the_requester_accepts(harness: Harness):
    offered = make_counter_proposal(harness, harness.request(LAMP_ON), value="dim")
    with pytest.raises(TooLate):
        harness.approve(offered, "adam")
    with pytest.raises(NotAllowed, match="only Dora Developer"):
        accept(harness, offered, "adam")
    assert harness.fleet.sent == []


def test_original_run_stays_pending_when_its_counter_proposal_is_withdrawn(db_harness: Harness):
    harness = db_harness
    first = harness.request(LAMP_ON)
    offered = make_counter_proposal(harness, first, value="dim")
    withdrawn = harness.service.withdraw_run(offered.id, person="dora")
    assert (withdrawn.state, withdrawn.summary) == (State.WITHDRAWN, "The requester withdrew it")
    with pytest.raises(TooLate):
        accept(harness, offered)
    assert harness.approve(harness.get_run(first.id), "olga").state is State.SUCCEEDED
    assert harness.fleet.sent == [("lb1", "set lamp on")]


def test_original_run_stays_pending_when_its_counter_proposal_is_denied(harness: Harness):
    first = harness.request(LAMP_ON)
    offered = make_counter_proposal(harness, first, value="dim")
    harness.service.deny_run(offered.id, person="adam", reason="too dim")
    assert harness.get_run(first.id).state is State.PENDING
    assert harness.approve(first, "adam").state is State.SUCCEEDED


def test_original_run_keeps_its_approvals_while_a_counter_proposal_is_open(tmp_path: Path):
    with open_harness(tmp_path, rules=TWO_APPROVALS) as harness:
        areas = harness.policies.path / "areas.yaml"
        areas.write_text(areas.read_text().replace("[olga, adam]", "[olga, adam, stan]"))
        first = harness.request(LAMP_ON)
        assert harness.approve(first, "adam").state is State.PENDING
        offered = make_counter_proposal(harness, first, value="dim")
        assert offered.state is State.COUNTER_PROPOSED
        harness.service.withdraw_run(offered.id, person="dora")
        assert harness.approve(first, "olga").state is State.SUCCEEDED


def _approve(harness: Harness, run: Run) -> None:
    harness.approve(run, "adam")


def _deny(harness: Harness, run: Run) -> None:
    harness.service.deny_run(run.id, person="adam", reason="not today")


def _withdraw_run(harness: Harness, run: Run) -> None:
    harness.service.withdraw_run(run.id, person="dora")


def _expire(harness: Harness, run: Run) -> None:
    with harness.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, run.id), expires_at=tx.now)


@pytest.mark.parametrize("decide", [_approve, _deny, _withdraw_run, _expire])
@pytest.mark.parametrize("many", [False, True], ids=["one host", "several hosts"])
def test_counter_proposal_ends_when_the_original_run_is_decided(
    db_harness: Harness, decide: Callable[[Harness, Run], None], many: bool
):
    harness = db_harness
    if many:
        requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
        first = harness.service.request_on_hosts(
            requests, RequestTerms("dora", WEB), host_pattern="lb*"
        )
        harness.run_queued_work()
        first = harness.get_run(first.id)
    else:
        first = harness.request(LAMP_ON)
    offered = make_counter_proposal(harness, first, value="dim")
    decide(harness, first)
    sent_before = list(harness.fleet.sent)
    # At once, before anybody has looked what is due.
    with pytest.raises(TooLate, match="not pending"):
        accept(harness, offered)
    harness.service.advancer.expire_runs()
    ended = harness.get_run(offered.id)
    assert ended.state is State.WITHDRAWN
    assert ended.summary.startswith(f"The original request, run {first.id}, ")
    with harness.database.reading() as tx:
        assert not [part for part in runs.list_children(tx, offered.id) if not part.is_ended]
    assert harness.fleet.sent == sent_before
    # Once is enough.
    assert harness.service.advancer.expire_runs() == []


def test_accepted_counter_proposal_supersedes_the_original_and_ends_the_other(
    db_harness: Harness,
):
    harness = db_harness
    first = harness.request(LAMP_ON)
    dim = make_counter_proposal(harness, first, "olga", value="dim")
    dark = make_counter_proposal(harness, first, "adam", value="dark")
    assert (dim.state, dark.state) == (State.COUNTER_PROPOSED, State.COUNTER_PROPOSED)
    assert accept(harness, dark).state is State.PENDING
    assert harness.get_run(first.id).state is State.SUPERSEDED
    with pytest.raises(TooLate, match="was superseded"):
        accept(harness, dim)
    harness.service.advancer.expire_runs()
    assert harness.get_run(dim.id).state is State.WITHDRAWN
    assert harness.approve(dark, "olga").state is State.SUCCEEDED
    assert harness.fleet.sent == [("lb1", "set lamp dark")]


def test_counter_proposal_expires_with_the_original_run(harness: Harness):
    first = harness.request(LAMP_ON)
    with harness.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, first.id), expires_at=tx.now + 60_000_000)
    offered = make_counter_proposal(harness, first, value="dim")
    assert offered.expires_at == harness.get_run(first.id).expires_at


def test_counter_proposal_under_an_earlier_policy_cannot_be_accepted(harness: Harness):
    first = harness.request(LAMP_ON)
    offered = make_counter_proposal(harness, first, value="dim")
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(rules.read_text().replace("an owner of the area", "an owner"))
    with pytest.raises(TooLate, match="earlier policy"):
        accept(harness, offered)
    assert harness.get_run(first.id).state is State.PENDING


@pytest.mark.parametrize("attempt", range(5))
def test_concurrent_acceptance_and_approval_let_only_one_win(db_harness: Harness, attempt: int):
    harness, flow = db_harness, db_harness.service
    first = harness.request(LAMP_ON)
    offered = make_counter_proposal(harness, first, value="dim")
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
    flow.advancer.expire_runs()
    after = harness.get_run(offered.id)
    if after.state is State.PENDING:
        assert harness.get_run(first.id).state is State.SUPERSEDED
        harness.approve(after, "adam")
    harness.run_queued_work()
    assert len(harness.fleet.sent) == 1


def test_unanswered_counter_proposal_expires(harness: Harness):
    offered = make_counter_proposal(harness, harness.request(LAMP_ON), value="dim")
    with harness.database.transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, offered.id), expires_at=tx.now)
    with pytest.raises(TooLate):
        accept(harness, offered)
    harness.service.advancer.expire_runs()
    assert harness.get_run(offered.id).state is State.EXPIRED


def test_counter_proposal_without_changes_leaves_the_original_run_pending(harness: Harness):
    first = harness.request(LAMP_ON)
    useless = make_counter_proposal(harness, first, value="off")
    assert useless.state is State.NO_CHANGES
    assert harness.get_run(first.id).state is State.PENDING
    assert harness.approve(first, "olga").state is State.SUCCEEDED


def test_run_decided_during_planning_of_a_counter_proposal_is_not_superseded(harness: Harness):
    first = harness.request(LAMP_ON)
    new = harness.service.propose_values(first.id, person="olga", changed_values={"value": "dim"})
    harness.service.approve_run(first.id, person="adam", digest=first.digest)
    harness.run_queued_work()
    assert harness.get_run(first.id).state is State.SUCCEEDED
    ended = harness.get_run(new.id)
    assert (ended.state, ended.summary) == (State.WITHDRAWN, f"Run {first.id} is queued already")


def test_accepted_counter_proposal_can_be_edited_again_by_another_approver(harness: Harness):
    areas = harness.policies.path / "areas.yaml"
    areas.write_text(areas.read_text().replace("[olga, adam]", "[olga, adam, stan]"))
    once = accept(harness, make_counter_proposal(harness, harness.request(LAMP_ON), value="dim"))
    twice = accept(harness, make_counter_proposal(harness, once, "adam", value="dark"))
    assert twice.editors == ("olga", "adam")
    with pytest.raises(NotAllowed):
        harness.approve(twice, "olga")
    assert harness.approve(twice, "stan").state is State.SUCCEEDED


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
def test_invalid_counter_proposal_is_rejected_with_the_reason(
    harness: Harness, person: str, changes: dict[str, str], why: str
):
    run = harness.request(LAMP_ON)
    with pytest.raises((InvalidRequestError, NotAllowed), match=why):
        make_counter_proposal(harness, run, person, **changes)
    assert harness.get_run(run.id).state is State.PENDING


def test_only_possible_approver_cannot_make_a_counter_proposal(harness: Harness):
    areas = harness.policies.path / "areas.yaml"
    areas.write_text(areas.read_text().replace("[olga, adam]", "[olga]"))
    run = harness.request(LAMP_ON)
    with pytest.raises(InvalidRequestError, match="you cannot approve them"):
        make_counter_proposal(harness, run, value="dim")


def test_counter_proposal_for_several_hosts_changes_the_value_on_each(harness: Harness):
    requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    whole = harness.service.request_on_hosts(
        requests, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    harness.run_queued_work()
    offered = make_counter_proposal(harness, harness.get_run(whole.id), value="dim")
    assert (offered.state, offered.title) == (State.COUNTER_PROPOSED, "toy set lb* lamp dim")
    done = harness.approve(accept(harness, offered), "adam")
    assert done.state is State.SUCCEEDED
    assert harness.fleet.sent == [("lb1", "set lamp dim"), ("lb2", "set lamp dim")]


def test_counter_proposal_for_an_undo_or_an_ended_run_is_rejected(harness: Harness):
    done = harness.approve(harness.request(LAMP_ON))
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    harness.run_queued_work()
    with pytest.raises(InvalidRequestError, match="an undo"):
        make_counter_proposal(harness, undo, value="dim")
    with pytest.raises(TooLate):
        make_counter_proposal(harness, done, value="dim")


def test_counter_proposal_with_a_secret_is_rejected_and_not_stored(tmp_path: Path):
    secret = "Canary-of-ours-0123456789"
    store = Database(
        f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create(), Redactor([secret])
    )
    with open_harness(tmp_path, database=store) as harness:
        run = harness.request(LAMP_ON)
        with pytest.raises(InvalidRequestError, match="contains a password"):
            make_counter_proposal(harness, run, value=secret)
        # What is typed by mistake is on no page: the twin is what is no secret.
        assert make_counter_proposal(harness, run, value="dim").values["value"] == "dim"
        with pytest.raises(NoSuchRun):
            harness.get_run(run.id + 2)
