"""Slack accounts are mapped to people of the policy, anew for each request and decision."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.policy import PolicyDirectory
from bot.slack.identity import AccountRefused, IdentityService
from bot.slack.payloads import Account
from tests.bot.slack.chat import Chat
from tests.bot.slack.web_api import WebApi, serve_web_api
from tests.policies import TEAM, write_policy

pytestmark = pytest.mark.anyio
DORA = Account(TEAM, "U0DORA")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def slack(anyio_backend: str):
    async with serve_web_api() as api:
        yield api


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policies(tmp_path: Path) -> PolicyDirectory:
    return write_policy(tmp_path)


@pytest.fixture
def identity(policies: PolicyDirectory, slack: WebApi, clock: Clock) -> IdentityService:
    client = AsyncWebClient(token="xoxb-1", base_url=slack.url, timeout=5)
    return IdentityService(policies, client, team=TEAM, clock=clock)


async def test_slack_account_in_the_policy_is_mapped_to_its_person(identity: IdentityService):
    assert (await identity.get_person(DORA)).id == "dora"


BARRED: dict[str, dict[str, Any]] = {
    "is deactivated": {"deleted": True},
    "is a bot": {"is_bot": True},
    "is a workflow": {"is_workflow_bot": True},
    "is a guest account": {"is_restricted": True},
    "is a guest account.": {"is_ultra_restricted": True, "is_restricted": True},
    "belongs to another Slack workspace": {"is_stranger": True},
    "belongs to another Slack workspace.": {"team_id": "T0OTHER"},
    "this Slack account belongs to another": {"id": "U0OTHER"},
}


@pytest.mark.parametrize(("why", "flags"), BARRED.items(), ids=BARRED.keys())
async def test_barred_slack_account_is_refused_with_its_reason(
    identity: IdentityService, slack: WebApi, why: str, flags: dict[str, Any]
):
    slack.users["U0DORA"] = flags
    with pytest.raises(AccountRefused, match=why):
        await identity.get_person(DORA)


@pytest.mark.parametrize(
    "account",
    [
        Account(TEAM, "U0NOBODY"),
        Account("T0OTHER", "U0DORA"),
        Account("T0OTHER", "U0DORA", "E0OTHER"),
        Account("", "U0DORA"),
        Account(TEAM, ""),
        Account(TEAM, "dora"),
        Account(TEAM, "u0dora"),
    ],
    ids=["unknown", "other team", "other organisation", "no team", "no user", "a name", "case"],
)
async def test_slack_account_outside_the_policy_is_refused(
    identity: IdentityService, account: Account
):
    with pytest.raises(AccountRefused):
        await identity.get_person(account)


async def test_enterprise_grid_account_of_a_sister_workspace_is_accepted(
    identity: IdentityService, policies: PolicyDirectory, slack: WebApi
):
    people = policies.path / "people.yaml"
    people.write_text(
        people.read_text().replace("user: U0DORA", "user: U0DORA, enterprise: E0OURS")
    )
    slack.users["U0DORA"] = {"team_id": "T0SISTER", "enterprise_user": {"enterprise_id": "E0OURS"}}
    sister = Account("T0SISTER", "U0DORA", "E0OURS")
    assert (await identity.get_person(sister)).id == "dora"
    slack.users["U0DORA"] = {"team_id": "T0SISTER", "enterprise_user": {"enterprise_id": "E0ELSE"}}
    with pytest.raises(AccountRefused):
        await identity.get_person(Account("T0SECOND", "U0DORA", "E0OURS"))


async def test_slack_account_of_another_team_is_refused_though_the_policy_lists_it(
    identity: IdentityService, policies: PolicyDirectory, slack: WebApi
):
    people = policies.path / "people.yaml"
    elsewhere = "slack: [{team: T0OTHER, user: U0EXT}, "
    people.write_text(people.read_text().replace("slack: [", elsewhere, 1))
    slack.users["U0EXT"] = {"team_id": "T0OTHER"}
    for enterprise in ("", "E0OTHER"):
        with pytest.raises(AccountRefused):
            await identity.get_person(Account("T0OTHER", "U0EXT", enterprise))


async def test_slack_account_is_looked_up_again_after_a_minute(
    identity: IdentityService, slack: WebApi, clock: Clock
):
    await identity.get_person(DORA)
    await identity.get_person(DORA)
    assert len(slack.calls) == 1
    slack.users["U0DORA"] = {"deleted": True}
    clock.now += 61
    with pytest.raises(AccountRefused, match="deactivated"):
        await identity.get_person(DORA)


async def test_concurrent_lookups_of_one_slack_account_are_one_call(
    identity: IdentityService, slack: WebApi
):
    people = await asyncio.gather(*(identity.get_person(DORA) for _ in range(64)))
    assert {person.id for person in people} == {"dora"}
    assert len(slack.calls) == 1


async def test_without_sharing_lookups_each_one_calls_slack(
    identity: IdentityService, slack: WebApi
):
    """The twin of the one question."""
    await asyncio.gather(*(identity._fetch_user(DORA) for _ in range(8)))  # pyright: ignore[reportPrivateUsage] - what each would do alone
    assert len(slack.calls) == 8


async def test_concurrent_lookups_of_two_slack_accounts_are_two_calls(
    identity: IdentityService, slack: WebApi
):
    people = await asyncio.gather(*map(identity.get_person, (DORA, Account(TEAM, "U0OLGA")) * 4))
    assert {person.id for person in people} == {"dora", "olga"}
    assert len(slack.calls) == 2


async def test_failed_account_lookup_refuses_all_waiting_callers_and_is_not_cached(
    identity: IdentityService, slack: WebApi
):
    slack.refuse("users.info", "internal_error")
    # Past the policy, which each asks in a thread of its own and for as long as it takes.
    waiting = (identity._get_barred_reason(DORA) for _ in range(8))  # pyright: ignore[reportPrivateUsage]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(one) for one in results} == {AccountRefused}
    assert len(slack.calls) == 1
    assert (await identity.get_person(DORA)).id == "dora"


async def test_shared_account_lookup_survives_cancellation_of_the_first_caller(
    identity: IdentityService, slack: WebApi
):
    slack.slowly = 0.2
    first, second = (asyncio.create_task(identity.get_person(DORA)) for _ in range(2))
    async with asyncio.timeout(30):
        while not slack.calls:
            await asyncio.sleep(0.005)
    first.cancel()
    assert (await second).id == "dora"
    assert first.cancelled()
    assert len(slack.calls) == 1


@pytest.mark.parametrize("error", ["ratelimited", "user_not_found", "internal_error"])
async def test_account_is_refused_when_slack_returns_an_error(
    identity: IdentityService, slack: WebApi, error: str
):
    slack.refuse("users.info", error, status=429 if error == "ratelimited" else 200)
    with pytest.raises(AccountRefused, match="did not confirm"):
        await identity.get_person(DORA)
    assert (await identity.get_person(DORA)).id == "dora"


@pytest.mark.parametrize("error", ["invalid_auth", "token_revoked", "missing_scope"])
async def test_bot_token_error_in_account_lookup_points_to_keyturn_doctor(
    identity: IdentityService, slack: WebApi, error: str
):
    slack.refuse("users.info", error)
    with pytest.raises(AccountRefused, match=rf"\({error}\).* keyturn doctor"):
        await identity.get_person(DORA)


async def test_account_is_refused_when_slack_does_not_answer_in_time(
    identity: IdentityService, slack: WebApi
):
    slack.slowly = 2.2
    with pytest.raises(AccountRefused, match="did not confirm"):
        await identity.get_person(DORA)


async def test_approver_deactivated_since_the_request_cannot_approve(chat: Chat):
    await chat.type("toy set lb1 lamp on")
    chat.slack.users["U0OLGA"] = {"deleted": True}
    await chat.press("approve", "U0OLGA")
    assert chat.harness.fleet.sent == []
    assert "is deactivated" in chat.slack.whispers("U0OLGA")[0].words


async def test_refused_slack_accounts_are_reported_and_accepted_ones_are_not(
    policies: PolicyDirectory, slack: WebApi
):
    turned_away: list[str] = []
    client = AsyncWebClient(token="xoxb-1", base_url=slack.url, timeout=5)
    identity = IdentityService(
        policies,
        client,
        team=TEAM,
        on_unknown_account=lambda account, why: turned_away.append(f"{account.user}: {why}"),
    )
    await identity.get_person(DORA)
    assert turned_away == []
    with pytest.raises(AccountRefused):
        await identity.get_person(Account(TEAM, "U0NOBODY"))
    assert len(turned_away) == 1
    assert turned_away[0].startswith("U0NOBODY: Keyturn does not know")
