"""A census: whether the accounts that the policy knows are people's of our workspace."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.finding import Finding, mend, note, ok
from bot.slack.identity import why_barred
from bot.slack.payloads import Account
from bot.slack.voice import error_of

# The accounts of each person, by the person's name in the policy.
People = Mapping[str, Sequence[Account]]

_ABOUT = "the people"
# users.info takes a hundred a minute and more.
_MOST, _AT_ONCE = 100, 5
_NOBODY = frozenset({"user_not_found", "user_not_visible", "users_not_found"})
_WHERE = "in Slack, the profile, ⋮, Copy member ID"


async def census(client: AsyncWebClient, team: str, people: People) -> AsyncGenerator[Finding]:
    """Yield whom Keyturn would not know, and in one line how many it would. team: ours, T…."""
    ours = [
        (person, account)
        for person, accounts in people.items()
        for account in accounts
        if account.team == team or account.enterprise
    ]
    if not ours:
        yield mend(
            _ABOUT, f"none in people.yaml has an account of {team}: put their ids there ({_WHERE})"
        )
        return
    without = sorted(set(people) - {person for person, _ in ours})
    if without:
        few = ", ".join(without[:10]) + (", …" if len(without) > 10 else "")
        yield note(_ABOUT, f"without an account of {team}, so not known in Slack: {few}")
    asking = asyncio.Semaphore(_AT_ONCE)
    looked = [_look(client, asking, *each) for each in ours[:_MOST]]
    try:
        found = [one for one in await asyncio.gather(*looked) if one is not None]
    except (SlackClientError, ClientError, OSError) as trouble:
        said = error_of(trouble) if isinstance(trouble, SlackApiError) else type(trouble).__name__
        yield note(_ABOUT, f"Slack did not say of all whether they are there ({said})")
        return
    for one in found:
        yield one
    if not found:
        few = f"the first {_MOST}" if len(ours) > _MOST else "all"
        yield ok(_ABOUT, f"are known to Slack: {few} of {len(ours)} accounts")


async def _look(
    client: AsyncWebClient, asking: asyncio.Semaphore, person: str, account: Account
) -> Finding | None:
    """Return what is wrong with one account."""
    about = f"{_ABOUT}: {person}"
    try:
        async with asking:
            answer = await client.users_info(user=account.user)
    except SlackApiError as refused:
        if error_of(refused) not in _NOBODY:
            raise
        return mend(about, f"{account.user} is nobody there: put the right id ({_WHERE})")
    user = cast("Mapping[str, Any]", answer.get("user") or {})
    barred = why_barred(user, account)
    if barred:
        return note(about, f"{account.user} {barred}, and may do nothing: take it out")
    return None
