"""What ends with a person whom the provider removes: all that they had, and nothing of others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bot.auth import sessions, tokens
from bot.db import delegations, grants, runs
from bot.features.scim.facts import apply_people
from bot.features.scim.rows import UserRow
from bot.model.errors import NotAllowed
from bot.model.grant_words import NewGrant
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.model.times import DAY, HOUR
from bot.model.waiting import WaitingFor
from bot.policy.oncall import Duty
from tests.bot.clock import Clock
from tests.bot.features.scim.accounts import Provider, add_provisioning, bind
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.signing.ssh_key import SshKey
from tests.policies import get_signed_rules, get_starter_rules, give_signing_key
from tests.toy import SetSwitch

_TWO = get_starter_rules().replace('@approvals("1")', '@approvals("2")', 1)


def switch_on(harness: Harness, person: str = "dora") -> Run:
    return harness.request(SetSwitch(host="lb1", name="lamp", value="on"), person)


def remove_by_patch(provider: Provider, user: UserRow) -> None:
    provider.set_active(user, is_active=False)


def remove_by_delete(provider: Provider, user: UserRow) -> None:
    provider.delete(user)


both_ways = pytest.mark.parametrize("remove", [remove_by_patch, remove_by_delete])
Remove = Callable[[Provider, UserRow], None]


@both_ways
def test_sessions_links_tokens_grants_and_delegations_end_at_once(
    company: Harness, provider: Provider, tmp_path: Path, remove: Remove
) -> None:
    account = provider.add("olga@example.com")
    bind(tmp_path / "policy", "olga", account.user_id)
    with company.database.transaction() as tx:
        ends_at = tx.now + DAY
        session, other = (sessions.begin_session(tx, one) for one in ("olga", "adam"))
        link = sessions.create_sign_in_link(tx, "olga")
    _, secret = company.service.tokens.create_token(
        person="olga", scopes=["approve"], days=1, name="laptop", source="web"
    )
    company.service.delegations.create_delegation(
        delegator="olga", delegate="dora", ends_at=ends_at, source="web"
    )
    company.service.delegations.create_delegation(
        delegator="adam", delegate="olga", ends_at=ends_at, source="web"
    )
    grant = NewGrant("dora", "toy set", "lb*", per_hour=5, ends_at=ends_at, values={})
    company.service.grants.create_grant(grant, granted_by="olga", source="web")
    remove(provider, account)
    with company.database.reading() as tx:
        assert sessions.find_session(tx, session) is None
        assert sessions.read_sign_in_link(tx, link) is None
        assert sessions.find_session(tx, other)
        found = tokens.find_token(tx, secret)
        assert found is not None
        assert found.revoked_at
        assert not delegations.list_active_delegations(tx)
        assert not grants.list_newest_active_grants(tx)
    kinds = company.list_entry_kinds()
    assert kinds[-5:] == [
        "person deprovisioned",
        "grant revoked",
        "delegation revoked",
        "delegation revoked",
        "token revoked",
    ]


def test_nothing_comes_back_with_an_account_that_is_active_again(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    account = provider.add("olga@example.com")
    bind(tmp_path / "policy", "olga", account.user_id)
    with company.database.transaction() as tx:
        session = sessions.begin_session(tx, "olga")
    _, secret = company.service.tokens.create_token(
        person="olga", scopes=["approve"], days=1, name="laptop", source="web"
    )
    gone = provider.set_active(account, is_active=False)
    provider.set_active(gone, is_active=True)
    assert company.policies.get_policy().find_person("olga")
    with company.database.reading() as tx:
        assert sessions.find_session(tx, session) is None
        found = tokens.find_token(tx, secret)
        assert found is not None
        assert found.revoked_at


@both_ways
def test_waiting_requests_of_the_person_are_withdrawn_and_those_of_others_stay(
    company: Harness, provider: Provider, tmp_path: Path, remove: Remove
) -> None:
    account = provider.add("dora@example.com")
    bind(tmp_path / "policy", "dora", account.user_id)
    mine, other = switch_on(company), switch_on(company, "stan")
    remove(provider, account)
    ended = company.get_run(mine.id)
    assert (ended.state, ended.summary) == (
        State.WITHDRAWN,
        "The identity provider removed Dora Developer, for whom it was requested",
    )
    assert company.get_run(other.id).state is State.PENDING


def test_requests_of_a_person_without_an_entry_in_people_yaml_are_withdrawn(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com", name="Ines Example")
    provider.add_group("Platform", ines)
    run = switch_on(company, ines.person)
    assert run.state is State.PENDING
    provider.delete(ines)
    assert company.get_run(run.id).state is State.WITHDRAWN
    assert company.policies.get_policy().get_person_name(ines.person) == "Ines Example"


def test_an_approval_given_before_counts_no_more(tmp_path: Path) -> None:
    """The run waits for another approval instead: the approval was of one who may not decide."""
    with open_harness(tmp_path, rules=_TWO) as company:
        add_provisioning(tmp_path / "policy")
        provider = Provider(company)
        account = provider.add("adam@example.com")
        bind(tmp_path / "policy", "adam", account.user_id)
        run = company.approve(switch_on(company), "adam")
        assert run.state is State.PENDING
        provider.delete(account)
        with pytest.raises(NotAllowed):
            company.service.approve_run(run.id, person="adam", digest=run.digest)
        assert company.approve(run, "olga").state is State.PENDING
        assert company.fleet.sent == []


def test_a_queued_run_whose_approver_was_removed_waits_for_another_approval(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    account = provider.add("adam@example.com")
    bind(tmp_path / "policy", "adam", account.user_id)
    run = switch_on(company)
    company.service.approve_run(run.id, person="adam", digest=run.digest)
    assert company.get_run(run.id).state is State.QUEUED
    provider.delete(account)
    company.run_queued_work()
    assert company.get_run(run.id).state is State.PENDING
    assert company.fleet.sent == []
    assert company.approve(company.get_run(run.id), "olga").state is State.SUCCEEDED


@pytest.mark.parametrize(("pattern", "hosts"), [("", ("lb1",)), ("lb*", ("lb1", "lb2"))])
def test_run_that_starts_later_needs_another_approval_once_its_approver_is_removed(
    tmp_path: Path, pattern: str, hosts: tuple[str, ...]
) -> None:
    """At once, while others are awake; it does not say until then that it starts."""
    clock = Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
    with open_harness(tmp_path, database=clock) as company:
        add_provisioning(tmp_path / "policy")
        provider = Provider(company)
        account = provider.add("adam@example.com")
        bind(tmp_path / "policy", "adam", account.user_id)
        clock.stop()
        [*changes] = [SetSwitch(host=name, name="lamp", value="on") for name in hosts]
        terms = RequestTerms("dora", WEB)
        run = company.service.request_on_hosts(changes, terms, host_pattern=pattern)
        company.run_queued_work()
        with company.database.reading() as tx:
            at = tx.now + HOUR
        digest = company.get_run(run.id).digest
        company.service.approve_run(run.id, person="adam", digest=digest, start_at=at)
        company.run_queued_work()
        waiting = company.get_run(run.id).waiting
        assert waiting is not None
        assert (waiting.reason, waiting.time) == (WaitingFor.START_TIME, at)
        provider.delete(account)
        company.run_queued_work()
        assert company.get_run(run.id).state is State.PENDING
        clock.ahead += HOUR
        company.service.advancer.wake_stalled_runs()
        company.run_queued_work()
        assert company.get_run(run.id).state is State.PENDING
        assert company.fleet.sent == []


def test_a_signature_given_before_counts_no_more(tmp_path: Path) -> None:
    """It is over exactly this plan and of a key that people.yaml still names."""
    with open_harness(tmp_path, rules=get_signed_rules("approver")) as company:
        add_provisioning(tmp_path / "policy")
        provider = Provider(company)
        account = provider.add("adam@example.com")
        bind(tmp_path / "policy", "adam", account.user_id)
        keys = {name: SshKey.create(tmp_path, name=name) for name in ("adam", "olga")}
        for name, key in keys.items():
            give_signing_key(tmp_path / "policy", name, key.line)

        def sign(run: Run, person: str) -> str:
            assert run.plan
            signature = keys[person].sign(run.plan.document.encode())
            company.service.approve_run(
                run.id, person=person, digest=run.digest, signature=signature
            )
            return signature

        before = switch_on(company)
        sign(before, "adam")
        company.run_queued_work()
        assert company.get_run(before.id).state is State.SUCCEEDED
        sent = [*company.fleet.sent]
        run = company.request(SetSwitch(host="lb2", name="lamp", value="on"))
        signature = sign(run, "adam")
        assert company.get_run(run.id).state is State.QUEUED
        provider.delete(account)
        company.run_queued_work()
        assert company.get_run(run.id).state is State.PENDING
        with pytest.raises(NotAllowed):
            company.service.approve_run(
                run.id, person="adam", digest=run.digest, signature=signature
            )
        assert company.fleet.sent == sent
        sign(run, "olga")
        company.run_queued_work()
        assert company.get_run(run.id).state is State.SUCCEEDED


def test_an_approval_does_not_come_back_with_an_account_that_is_active_again(
    tmp_path: Path,
) -> None:
    with open_harness(tmp_path, rules=_TWO) as company:
        add_provisioning(tmp_path / "policy")
        provider = Provider(company)
        account = provider.add("adam@example.com")
        bind(tmp_path / "policy", "adam", account.user_id)
        run, denied = company.approve(switch_on(company), "adam"), switch_on(company, "stan")
        company.service.deny_run(denied.id, person="adam", reason="not today")
        back = provider.set_active(provider.set_active(account, is_active=False), is_active=True)
        assert back.is_active
        with company.database.reading() as tx:
            assert not runs.list_decisions(tx, run.id)
            assert [one.approves for one in runs.list_decisions(tx, denied.id)] == [False]
        assert company.approve(run, "olga").state is State.PENDING
        # The person can approve again, as anybody who has not decided.
        assert company.approve(run, "adam").state is State.SUCCEEDED


def test_a_removed_person_is_not_on_duty(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    calendar = "oncall:\n  edge: {file: edge.ics, areas: [edge]}\n"
    (tmp_path / "policy" / "oncall.yaml").write_text(calendar)
    account = provider.add("dora@example.com")
    bind(tmp_path / "policy", "dora", account.user_id)
    duties = {"edge": Duty(("dora",), is_known=True)}
    policy = company.policies.get_policy().with_duties(duties)
    dora = policy.find_person("dora")
    assert dora is not None
    assert "oncall:edge" in dora.roles
    provider.delete(account)
    with company.database.reading() as tx:
        after = apply_people(tx, policy)
    assert after.find_person("dora") is None
    adam = after.find_person("adam")
    assert adam is not None
    assert "oncall:edge" not in adam.roles


def test_break_glass_of_a_person_who_was_removed_is_refused(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    account = provider.add("adam@example.com")
    bind(tmp_path / "policy", "adam", account.user_id)
    run = switch_on(company)
    provider.delete(account)
    with pytest.raises(NotAllowed):
        company.service.break_glass.request_break_glass(
            run.id, person="adam", reason="the cellar is dark and no one answers"
        )
    assert company.get_run(run.id).state is State.PENDING
