"""Delegations: who decides on whose behalf, until when, and what they never allow."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from bot.audit import change_log, grant_evidence
from bot.db import delegations, runs, tables
from bot.db.database import Transaction
from bot.db.delegations import Delegation
from bot.model.approvals import ApprovalRequirements
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.run import Decision, RequestTerms, Run, State
from bot.policy import Policy
from bot.queries import delegation_rules
from bot.queries.approval_count import get_ruling
from tests.bot.harness import Harness
from tests.toy import SetAll, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
HOUR = 3600 * 1_000_000


def delegate(
    harness: Harness, person: str = "olga", to: str = "stan", *, area: str = "", hours: int = 1
) -> Delegation:
    with harness.database.reading() as tx:
        ends = tx.now + hours * HOUR
    return harness.service.delegations.create_delegation(
        delegator=person, delegate=to, ends_at=ends, area=area, reason="on holiday", source="web"
    )


def require_two_approvals(harness: Harness) -> None:
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(rules.read_text().replace('@approvals("1")', '@approvals("2")', 1))


def add_forbid_rule(harness: Harness, rule: str) -> None:
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(f'{rules.read_text()}\n@id("new")\nforbid {rule};\n')


def get_delegator(harness: Harness, run: Run, person: str) -> str:
    policy = harness.policies.get_policy()
    with harness.database.reading() as tx:
        return delegation_rules.find_delegator(tx, policy, *get_ruling(tx, policy, run), person)


def test_delegate_approves_on_behalf_of_the_delegator(db_harness: Harness):
    harness = db_harness
    run = harness.request(LAMP_ON)
    with pytest.raises(NotAllowed, match=r"Those who can: Adam Admin, Olga Owner\.$"):
        harness.approve(run, "stan")
    delegate(harness)
    with pytest.raises(
        NotAllowed, match=r"Those who can: Adam Admin, Olga Owner, Stan Storage\.$"
    ):
        harness.approve(run, "dora")
    assert harness.approve(run, "stan").state is State.SUCCEEDED
    with harness.database.reading() as tx:
        vote = runs.list_decisions(tx, run.id)[0]
        approved = [
            one for one in change_log.list_entries_of_run(tx, run.id) if one.kind == "approved"
        ]
    assert (vote.person, vote.on_behalf_of) == ("stan", "olga")
    assert approved[0].facts["on_behalf_of"] == "olga"


def test_delegation_and_its_revocation_are_logged(harness: Harness):
    given_ = delegate(harness, area="edge")
    harness.service.delegations.end_delegation(given_.id, person="stan", source="slack")
    with harness.database.reading() as tx:
        entries = change_log.list_entries_after(tx, 0)[-2:]
    assert [(entry.kind, entry.person) for entry in entries] == [
        ("delegation created", "olga"),
        ("delegation revoked", "stan"),
    ]
    assert entries[0].facts["delegate"] == "stan"
    assert entries[0].facts["area"] == "edge"


@pytest.mark.parametrize("first", ["olga", "stan"])
def test_delegator_and_delegate_count_as_one_approval(harness: Harness, first: str):
    require_two_approvals(harness)
    delegate(harness)
    run = harness.request(LAMP_ON)
    harness.approve(run, first)
    second = "stan" if first == "olga" else "olga"
    assert harness.approve(run, second).state is State.PENDING
    assert harness.approve(run, "adam").state is State.SUCCEEDED


def test_two_delegates_of_one_owner_count_as_one_approval(harness: Harness):
    require_two_approvals(harness)
    people = harness.policies.path / "people.yaml"
    people.write_text(people.read_text() + "  eve: {name: Eve Else, roles: [developer]}\n")
    delegate(harness, to="stan")
    delegate(harness, to="eve")
    run = harness.request(LAMP_ON)
    harness.approve(run, "stan")
    assert harness.approve(run, "eve").state is State.PENDING


def _count_the_delegate(_policy: Policy, _in_force: object, vote: Decision, *_: object) -> str:
    return vote.person


def _trust_recorded_delegation(
    _policy: Policy, _in_force: object, vote: Decision, *_: object
) -> str:
    return vote.on_behalf_of or vote.person


def _count_missing_by_number(
    _policy: Policy, terms: ApprovalRequirements, keys: Collection[str]
) -> int:
    return max(terms.required_approvals - len(keys), 0)


def test_without_counting_by_delegator_two_delegates_count_as_two_approvals(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin: were a vote counted by who cast it, one owner's key would have opened it twice."""
    require_two_approvals(harness)
    people = harness.policies.path / "people.yaml"
    people.write_text(people.read_text() + "  eve: {name: Eve Else, roles: [developer]}\n")
    delegate(harness, to="stan")
    delegate(harness, to="eve")
    monkeypatch.setattr(delegation_rules, "get_counted_approver", _count_the_delegate)
    monkeypatch.setattr(Policy, "count_missing_approvals", _count_missing_by_number)
    run = harness.request(LAMP_ON)
    harness.approve(run, "stan")
    assert harness.approve(run, "eve").state is State.SUCCEEDED


def test_approval_is_refused_when_requester_approves_as_a_delegate(harness: Harness):
    delegate(harness, to="dora")
    with pytest.raises(NotAllowed, match="you requested it"):
        harness.approve(harness.request(LAMP_ON, person="dora"), "dora")
    assert harness.fleet.sent == []


def test_approval_is_refused_when_a_delegate_of_the_requester_approves(harness: Harness):
    delegate(harness, to="stan")
    run = harness.request(SetSwitch(host="nas1", name="lamp", value="on"), person="stan")
    assert get_delegator(harness, run, "stan") == ""
    require_two_approvals(harness)
    mine = harness.service.request_run(LAMP_ON, RequestTerms("olga", run.origin))
    assert get_delegator(harness, mine, "stan") == ""


def test_delegate_cannot_delegate_a_received_delegation(harness: Harness):
    delegate(harness, "olga", "stan", area="edge")
    delegate(harness, "stan", "dora")
    run = harness.request(LAMP_ON, person="adam")
    assert get_delegator(harness, run, "stan") == "olga"
    assert get_delegator(harness, run, "dora") == ""


def test_delegation_holds_only_in_its_area(harness: Harness):
    delegate(harness, area="web")
    with pytest.raises(NotAllowed):
        harness.approve(harness.request(LAMP_ON), "stan")


@pytest.mark.parametrize(
    ("person", "to", "area", "why"),
    [
        ("olga", "olga", "", "you cannot delegate to yourself"),
        ("olga", "nobody", "", "not in the policy"),
        ("dora", "stan", "", "you own no area"),
        ("olga", "stan", "storage", "you do not own storage, only the edge and the web servers"),
    ],
)
def test_delegation_to_oneself_or_of_an_area_not_owned_is_rejected(
    harness: Harness, person: str, to: str, area: str, why: str
):
    with pytest.raises((InvalidRequestError, NotAllowed), match=why):
        delegate(harness, person, to, area=area)


@pytest.mark.parametrize("hours", [0, -1, 91 * 24])
def test_delegation_must_end_within_90_days(harness: Harness, hours: int):
    with pytest.raises(InvalidRequestError, match="within 90 days"):
        delegate(harness, hours=hours)


def test_delegation_ends_at_the_microsecond_by_the_database_clock(db_harness: Harness):
    harness = db_harness
    made = delegate(harness)
    run = harness.request(LAMP_ON)
    policy = harness.policies.get_policy()
    for left, expected in ((1, "olga"), (0, ""), (-1, "")):
        with harness.database.transaction() as tx:
            tx.now = made.ends_at - left
            assert (
                delegation_rules.find_delegator(tx, policy, *get_ruling(tx, policy, run), "stan")
                == expected
            )


@given(
    made=st.integers(0, 10**15),
    length=st.integers(1, 10**12),
    at=st.integers(0, 10**15),
    revoked=st.booleans(),
)
def test_delegation_holds_until_its_end_exclusively(
    made: int, length: int, at: int, *, revoked: bool
):
    ends = made + length
    one = Delegation(1, "olga", "stan", "", made, ends, made if revoked else None)
    assert one.holds(area="edge", now=at) is (at < ends and not revoked)
    assert not one.holds(area="edge", now=ends)
    assert one.holds(area="edge", now=ends - 1) is not revoked


@pytest.mark.parametrize("how", ["ends", "revoked"])
def test_a_delegates_approval_does_not_count_when_the_delegation_ended(harness: Harness, how: str):
    made = delegate(harness)
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="stan", digest=run.digest)
    if how == "revoked":
        harness.service.delegations.end_delegation(made.id, person="olga", source="web")
    else:
        with harness.database.transaction() as tx:
            tx.sql.execute(update(tables.delegation).values(ends_at=tx.now))
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.REFUSED
    assert harness.fleet.sent == []


def test_without_the_recount_the_approval_of_a_revoked_delegation_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin: were delegations not looked at again, the run would have started."""
    made = delegate(harness)
    monkeypatch.setattr(delegation_rules, "get_counted_approver", _trust_recorded_delegation)
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="stan", digest=run.digest)
    harness.service.delegations.end_delegation(made.id, person="olga", source="web")
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_delegation_of_a_former_owner_does_not_count_at_the_gate(harness: Harness):
    delegate(harness)
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="stan", digest=run.digest)
    areas = harness.policies.path / "areas.yaml"
    areas.write_text(areas.read_text().replace("owners: [olga, adam]", "owners: [adam]"))
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.REFUSED
    assert harness.fleet.sent == []


def test_the_policy_may_forbid_deciding_on_behalf_of_another(harness: Harness):
    delegate(harness)
    add_forbid_rule(
        harness,
        '(principal, action == Action::"approve", resource in Area::"edge") '
        "when { context.delegated }",
    )
    run = harness.request(LAMP_ON)
    with pytest.raises(NotAllowed):
        harness.approve(run, "stan")
    assert harness.approve(run, "olga").state is State.SUCCEEDED


def test_forbid_rule_for_the_delegate_overrides_the_delegation(harness: Harness):
    delegate(harness)
    add_forbid_rule(
        harness, '(principal == Person::"stan", action == Action::"approve", resource)'
    )
    with pytest.raises(NotAllowed):
        harness.approve(harness.request(LAMP_ON), "stan")


def test_owner_who_is_also_a_delegate_approves_as_themselves(harness: Harness):
    require_two_approvals(harness)
    delegate(harness, "olga", "adam", area="edge")
    run = harness.request(LAMP_ON)
    harness.approve(run, "adam")
    assert harness.approve(run, "olga").state is State.SUCCEEDED


def test_denial_by_a_delegate_is_final(harness: Harness):
    delegate(harness)
    run = harness.request(SetAll(host="lb1", value="on"))
    denied = harness.service.deny_run(run.id, person="stan", reason="not today")
    assert (denied.state, denied.summary) == (
        State.DENIED,
        "Stan Storage on behalf of Olga Owner denied it: not today",
    )


def test_delegation_is_ended_once_by_its_delegator_or_delegate(harness: Harness):
    made = delegate(harness)
    with pytest.raises(NotAllowed, match="only Olga Owner and Stan Storage can end"):
        harness.service.delegations.end_delegation(made.id, person="adam", source="web")
    harness.service.delegations.end_delegation(made.id, person="olga", source="web")
    with pytest.raises(InvalidRequestError, match="ended already"):
        harness.service.delegations.end_delegation(made.id, person="olga", source="web")
    with pytest.raises(InvalidRequestError, match="no delegation 99"):
        harness.service.delegations.end_delegation(99, person="olga", source="web")


@pytest.mark.parametrize("how", ["forged", "restored"])
def test_delegation_that_the_log_does_not_confirm_does_not_count(harness: Harness, how: str):
    """Whoever writes to the tables alone makes nobody a delegate."""
    if how == "restored":
        made = delegate(harness)
        harness.service.delegations.end_delegation(made.id, person="olga", source="web")
    with harness.database.transaction() as tx:
        if how == "restored":
            tx.sql.execute(update(tables.delegation).values(revoked_at=None))
        else:
            delegations.add_delegation(
                tx, delegator="olga", delegate="stan", area="", ends=tx.now + HOUR, reason=""
            )
    with pytest.raises(NotAllowed):
        harness.approve(harness.request(LAMP_ON), "stan")
    assert harness.fleet.sent == []


def test_without_the_log_check_a_forged_delegation_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin of the above."""
    monkeypatch.setattr(grant_evidence, "list_logged_delegations", _list_ended_delegations_too)
    with harness.database.transaction() as tx:
        delegations.add_delegation(
            tx, delegator="olga", delegate="stan", area="", ends=tx.now + HOUR, reason=""
        )
    assert harness.approve(harness.request(LAMP_ON), "stan").state is State.SUCCEEDED


def _list_ended_delegations_too(_tx: Transaction, listed: list[Delegation]) -> list[Delegation]:
    return listed
