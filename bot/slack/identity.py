"""Who somebody is: from a Slack account to the person of the policy, or a clear no."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.model.times import is_time_zone
from bot.policy import Person, Policy
from bot.slack import threads
from bot.slack.client import error_of
from bot.slack.payloads import Account
from bot.workflow.context import Policies

log = logging.getLogger(__name__)

Done = TypeVar("Done")

_FRESH_SECONDS = 60
# Slack waits three seconds for the answer to a command or a click, and the rest needs some too.
_PATIENCE_SECONDS = 2.0
_MOST_REMEMBERED = 10_000

_FOREIGN = "belongs to another Slack workspace"
# Source: https://docs.slack.dev/reference/objects/user-object
_BARRED: Mapping[str, str] = {
    "deleted": "is deactivated",
    "is_bot": "is a bot",
    "is_workflow_bot": "is a workflow",
    "is_stranger": _FOREIGN,
    "is_restricted": "is a guest's",
    "is_ultra_restricted": "is a guest's",
}

# What asking again does not change: the bot's token is none, or may not ask.
_NOT_TO_US = frozenset(
    {"account_inactive", "invalid_auth", "missing_scope", "token_expired", "token_revoked"}
)


class Unwelcome(Exception):
    """Nobody whom Keyturn knows, or nobody who may act now. The message says why."""


@dataclass(frozen=True)
class _Standing:
    """What Slack said of an account. barred: why it may not act, "" if it may. at: seconds.

    zone: the one that Slack shows it times in.
    """

    barred: str
    at: float
    zone: str


class Identity:
    """Looks people up at every request and every decision. team: T…, our workspace.

    on_stranger: told of whom was turned away, and why. ban_notice: returns what the person of an
    account is told if they are banned, else "".
    """

    def __init__(
        self,
        policies: Policies,
        client: AsyncWebClient,
        *,
        team: str,
        clock: Callable[[], float] = time.monotonic,
        on_stranger: Callable[[Account, str], None] = lambda _account, _why: None,
        ban_notice: Callable[[Account], str] = lambda _account: "",
    ) -> None:
        self._policies, self._client, self._team, self._clock = policies, client, team, clock
        self._standings: dict[Account, _Standing] = {}
        self._asked: dict[Account, asyncio.Task[_Standing]] = {}
        self._on_stranger, self._ban_notice = on_stranger, ban_notice

    async def person(self, account: Account) -> Person:
        """Return whose account it is. Raises Unwelcome and NoPolicy."""
        person, _ = await threads.answered(self._known_or_told, account)
        barred = await self._barred(account)
        if barred:
            why = f"Nothing was done: this Slack account {barred}."
            await threads.answered(self._on_stranger, account, why)
            raise Unwelcome(why)
        return person

    def zone(self, account: Account) -> str:
        """Return in which time zone it is shown times, by what Slack said last; or else UTC."""
        standing = self._standings.get(account)
        return standing.zone if standing else "UTC"

    async def done(self, account: Account, act: Callable[[Person, Policy], Done]) -> Done:
        """Do something in a thread as whoever's account it is, and return what came of it.

        act: is told by which policy that is somebody. Raises Unwelcome, NoPolicy, and what that
        raises. The policy is asked in the same thread, and once: each change of threads costs as
        much as a short answer, and so does each look at the files.
        """
        standing = self._standing(account)
        if standing is None or standing.barred:
            await self.person(account)
        return await threads.answered(lambda: act(*self._known_or_told(account)))

    def _known_or_told(self, account: Account) -> tuple[Person, Policy]:
        try:
            return self._known(account)
        except Unwelcome as stranger:
            self._on_stranger(account, str(stranger))
            raise

    def _known(self, account: Account) -> tuple[Person, Policy]:
        if account.team != self._team and not account.enterprise:
            raise Unwelcome(f"Nothing was done: this Slack account {_FOREIGN}.")
        policy = self._policies.current()
        person = policy.household.by_slack(
            team=account.team, enterprise=account.enterprise or None, user=account.user
        )
        if person is None or not self._ours(person, account):
            notice = self._ban_notice(account)
            if notice:
                raise Unwelcome(notice)
            raise Unwelcome(
                f"Keyturn does not know your Slack account {account.user}. Somebody who keeps its "
                "policy can add it to people.yaml."
            )
        return person, policy

    def _ours(self, person: Person, account: Account) -> bool:
        """Return whether the account is of our workspace, or of the organisation that it is in."""
        return account.team == self._team or any(
            known.user == account.user and known.enterprise == account.enterprise
            for known in person.slack
        )

    async def _barred(self, account: Account) -> str:
        standing = self._standing(account)
        if standing is None:
            asked = self._asked.get(account)
            if asked is None:
                asked = asyncio.create_task(self._vouched(account))
                self._asked[account] = asked
                asked.add_done_callback(lambda _: self._asked.pop(account))
            # Others may wait for the same answer when whoever asked first goes away.
            standing = await asyncio.shield(asked)
        return standing.barred

    async def _vouched(self, account: Account) -> _Standing:
        """Ask Slack, and remember what it said. One question at a time is asked of an account."""
        user = await self._ask_slack(account)
        standing = _Standing(why_barred(user, account), self._clock(), _zone(user))
        if len(self._standings) >= _MOST_REMEMBERED:
            self._standings.clear()
        self._standings[account] = standing
        return standing

    def _standing(self, account: Account) -> _Standing | None:
        """Return what Slack has said a short while ago."""
        standing = self._standings.get(account)
        is_old = standing is None or self._clock() - standing.at > _FRESH_SECONDS
        return None if is_old else standing

    async def _ask_slack(self, account: Account) -> Mapping[str, Any]:
        """Ask Slack what the account is worth. No answer is a no: it raises Unwelcome."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answer = await self._client.users_info(user=account.user)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            error = error_of(trouble) if isinstance(trouble, SlackApiError) else ""
            said = error or type(trouble).__name__
            log.warning("Slack could not vouch for %s: %s", account.user, said)
            if error in _NOT_TO_US:
                raise Unwelcome(
                    f"Nothing was done: Slack does not tell Keyturn who you are ({error}). "
                    "Whoever keeps Keyturn finds out what to do with keyturn doctor."
                ) from None
            raise Unwelcome(
                "Nothing was done: Slack did not confirm your account. Try again in a minute."
            ) from None
        return cast("Mapping[str, Any]", answer.get("user") or {})


def _zone(user: Mapping[str, Any]) -> str:
    zone = str(user.get("tz") or "")
    return zone if is_time_zone(zone) and zone != "Etc/UTC" else "UTC"


def why_barred(user: Mapping[str, Any], account: Account) -> str:
    """Return why an account may not act, from what users.info says of it; "" if it may."""
    for flag, why in _BARRED.items():
        if user.get(flag):
            return why
    organisation: Mapping[str, Any] = user.get("enterprise_user") or {}
    if user.get("id") != account.user:
        return _FOREIGN
    if user.get("team_id") == account.team:
        return ""
    same = bool(account.enterprise) and organisation.get("enterprise_id") == account.enterprise
    return "" if same else _FOREIGN
