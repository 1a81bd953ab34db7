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
from bot.policy import Person, Policy, PolicySource
from bot.slack import threads
from bot.slack.client import get_error_code
from bot.slack.payloads import Account

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_CACHE_SECONDS = 60
# Slack waits three seconds for the answer to a command or a click, and the rest needs some too.
_TIMEOUT_SECONDS = 2.0
_MAX_CACHED_ACCOUNTS = 10_000

_OTHER_WORKSPACE = "belongs to another Slack workspace"
# Source: https://docs.slack.dev/reference/objects/user-object
_BARRING_FLAGS: Mapping[str, str] = {
    "deleted": "is deactivated",
    "is_bot": "is a bot",
    "is_workflow_bot": "is a workflow",
    "is_stranger": _OTHER_WORKSPACE,
    "is_restricted": "is a guest's",
    "is_ultra_restricted": "is a guest's",
}

# What asking again does not change: the bot's token is none, or may not ask.
_TOKEN_ERRORS = frozenset(
    {"account_inactive", "invalid_auth", "missing_scope", "token_expired", "token_revoked"}
)


class AccountRefused(Exception):
    """Nobody whom Keyturn knows, or nobody who may act now. The message says why."""


@dataclass(frozen=True)
class _AccountStatus:
    """What Slack said of an account. barred: why it may not act, "" if it may. at: seconds.

    zone: the one that Slack shows it times in.
    """

    barred_reason: str
    checked_at: float
    zone: str


class IdentityService:
    """Looks people up at every request and every decision. team: T…, our workspace.

    on_stranger: told of whom was turned away, and why. ban_notice: returns what the person of an
    account is told if they are banned, else "".
    """

    def __init__(
        self,
        policies: PolicySource,
        client: AsyncWebClient,
        *,
        team: str,
        clock: Callable[[], float] = time.monotonic,
        on_unknown_account: Callable[[Account, str], None] = lambda _account, _why: None,
        get_ban_notice: Callable[[Account], str] = lambda _account: "",
    ) -> None:
        self._policies, self._client, self._team, self._clock = policies, client, team, clock
        self._account_statuses: dict[Account, _AccountStatus] = {}
        self._pending_checks: dict[Account, asyncio.Task[_AccountStatus]] = {}
        self._on_unknown_account, self._get_ban_notice = on_unknown_account, get_ban_notice

    async def get_person(self, account: Account) -> Person:
        """Return whose account it is. Raises Unwelcome and NoPolicy."""
        person, _ = await threads.run_in_answer_thread(self._find_person_or_report, account)
        barred = await self._get_barred_reason(account)
        if barred:
            why = f"Nothing was done: this Slack account {barred}."
            await threads.run_in_answer_thread(self._on_unknown_account, account, why)
            raise AccountRefused(why)
        return person

    def get_time_zone(self, account: Account) -> str:
        """Return in which time zone it is shown times, by what Slack said last; or else UTC."""
        standing = self._account_statuses.get(account)
        return standing.zone if standing else "UTC"

    async def run_as_person(
        self, account: Account, action: Callable[[Person, Policy], Result]
    ) -> Result:
        """Do something in a thread as whoever's account it is, and return what came of it.

        act: is told by which policy that is somebody. Raises Unwelcome, NoPolicy, and what that
        raises. The policy is asked in the same thread, and once: each change of threads costs as
        much as a short answer, and so does each look at the files.
        """
        standing = self._get_fresh_status(account)
        if standing is None or standing.barred_reason:
            await self.get_person(account)
        return await threads.run_in_answer_thread(
            lambda: action(*self._find_person_or_report(account))
        )

    def _find_person_or_report(self, account: Account) -> tuple[Person, Policy]:
        try:
            return self._find_person(account)
        except AccountRefused as stranger:
            self._on_unknown_account(account, str(stranger))
            raise

    def _find_person(self, account: Account) -> tuple[Person, Policy]:
        if account.team != self._team and not account.enterprise:
            raise AccountRefused(f"Nothing was done: this Slack account {_OTHER_WORKSPACE}.")
        policy = self._policies.get_policy()
        person = policy.organisation.find_by_slack(
            team=account.team, enterprise=account.enterprise or None, user=account.user
        )
        if person is None or not self._is_account_ours(person, account):
            notice = self._get_ban_notice(account)
            if notice:
                raise AccountRefused(notice)
            raise AccountRefused(
                f"Keyturn does not know your Slack account {account.user}. Somebody who keeps its "
                "policy can add it to people.yaml."
            )
        return person, policy

    def _is_account_ours(self, person: Person, account: Account) -> bool:
        """Return whether the account is of our workspace, or of the organisation that it is in."""
        return account.team == self._team or any(
            known.user == account.user and known.enterprise == account.enterprise
            for known in person.slack
        )

    async def _get_barred_reason(self, account: Account) -> str:
        standing = self._get_fresh_status(account)
        if standing is None:
            asked = self._pending_checks.get(account)
            if asked is None:
                asked = asyncio.create_task(self._check_account(account))
                self._pending_checks[account] = asked
                asked.add_done_callback(lambda _: self._pending_checks.pop(account))
            # Others may wait for the same answer when whoever asked first goes away.
            standing = await asyncio.shield(asked)
        return standing.barred_reason

    async def _check_account(self, account: Account) -> _AccountStatus:
        """Ask Slack, and remember what it said. One question at a time is asked of an account."""
        user = await self._fetch_user(account)
        standing = _AccountStatus(
            get_barred_reason(user, account), self._clock(), _get_user_time_zone(user)
        )
        if len(self._account_statuses) >= _MAX_CACHED_ACCOUNTS:
            self._account_statuses.clear()
        self._account_statuses[account] = standing
        return standing

    def _get_fresh_status(self, account: Account) -> _AccountStatus | None:
        """Return what Slack has said a short while ago."""
        standing = self._account_statuses.get(account)
        is_old = standing is None or self._clock() - standing.checked_at > _CACHE_SECONDS
        return None if is_old else standing

    async def _fetch_user(self, account: Account) -> Mapping[str, Any]:
        """Ask Slack what the account is worth. No answer is a no: it raises Unwelcome."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                answer = await self._client.users_info(user=account.user)
        except (SlackClientError, ClientError, TimeoutError) as trouble:
            error = get_error_code(trouble) if isinstance(trouble, SlackApiError) else ""
            said = error or type(trouble).__name__
            _log.warning("Slack could not vouch for %s: %s", account.user, said)
            if error in _TOKEN_ERRORS:
                raise AccountRefused(
                    f"Nothing was done: Slack does not tell Keyturn who you are ({error}). "
                    "Whoever keeps Keyturn finds out what to do with keyturn doctor."
                ) from None
            raise AccountRefused(
                "Nothing was done: Slack did not confirm your account. Try again in a minute."
            ) from None
        return cast("Mapping[str, Any]", answer.get("user") or {})


def _get_user_time_zone(user: Mapping[str, Any]) -> str:
    zone = str(user.get("tz") or "")
    return zone if is_time_zone(zone) and zone != "Etc/UTC" else "UTC"


def get_barred_reason(user: Mapping[str, Any], account: Account) -> str:
    """Return why an account may not act, from what users.info says of it; "" if it may."""
    for flag, why in _BARRING_FLAGS.items():
        if user.get(flag):
            return why
    organisation: Mapping[str, Any] = user.get("enterprise_user") or {}
    if user.get("id") != account.user:
        return _OTHER_WORKSPACE
    if user.get("team_id") == account.team:
        return ""
    same = bool(account.enterprise) and organisation.get("enterprise_id") == account.enterprise
    return "" if same else _OTHER_WORKSPACE
