"""Identify the person of a Slack account, or refuse it with a reason."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from slack_sdk.web.async_client import AsyncWebClient

from bot.model.times import is_time_zone
from bot.policy import Person, Policy, PolicySource
from bot.slack import threads
from bot.slack.client import CALL_ERRORS, get_error_cause
from bot.slack.payloads import Account
from connectors.errors import DomainError

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_CACHE_SECONDS = 60
# Slack waits three seconds for the answer, and other work needs a part of that.
_TIMEOUT_SECONDS = 2.0
_MAX_CACHED_ACCOUNTS = 10_000
_MAX_CONTACTS = 5

_OTHER_WORKSPACE = "belongs to another Slack workspace"
# Source: https://docs.slack.dev/reference/objects/user-object
_BARRING_FLAGS: Mapping[str, str] = {
    "deleted": "is deactivated",
    "is_bot": "is a bot",
    "is_workflow_bot": "is a workflow",
    "is_stranger": _OTHER_WORKSPACE,
    "is_restricted": "is a guest account",
    "is_ultra_restricted": "is a guest account",
}

# Errors that a retry does not fix: the bot token is invalid or lacks a scope.
_TOKEN_ERRORS = frozenset(
    {"account_inactive", "invalid_auth", "missing_scope", "token_expired", "token_revoked"}
)


class AccountRefused(DomainError):
    """The account is unknown or must not act now. The message says why."""

    code, status = "account-refused", 403


class UnknownAccountError(AccountRefused):
    """The account is not in the policy.

    Args:
        account: the account.
        contacts: the people to ask: the owners of areas.
        with_names: whether the message names them.
    """

    def __init__(
        self, account: Account, contacts: Sequence[Person] = (), *, with_names: bool = False
    ) -> None:
        named = ", ".join(person.name for person in contacts[:_MAX_CONTACTS])
        whom = f"a Keyturn administrator ({named})" if with_names and named else ""
        super().__init__(
            f"Keyturn does not know your Slack account {account.user}. Ask "
            f"{whom or 'a Keyturn administrator'} to add it to people.yaml."
        )
        self.contacts = contacts[:_MAX_CONTACTS] if with_names else ()


@dataclass(frozen=True)
class _AccountStatus:
    """What Slack returned about an account."""

    barred_reason: str
    """Why it must not act; "" if it may."""
    checked_at: float
    """Seconds by the service's clock."""
    zone: str
    """The time zone in which Slack shows times to the account."""


class IdentityService:
    """Identifies people at every request and every decision.

    Args:
        policies: where people are defined.
        client: reads the state of accounts.
        team: T…, our workspace.
        clock: returns seconds.
        on_unknown_account: called with each refused account and the reason.
        get_ban_notice: returns the notice for a banned person's account, else "".
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
        """Return the person of an account. Raises AccountRefused and NoPolicyError."""
        try:
            person, _ = await threads.run_in_answer_thread(self._find_person_or_report, account)
        except UnknownAccountError:
            await self._name_contacts(account)
            raise
        barred = await self._get_barred_reason(account)
        if barred:
            reason = f"Nothing was done: this Slack account {barred}."
            await threads.run_in_answer_thread(self._on_unknown_account, account, reason)
            raise AccountRefused(reason)
        return person

    async def _name_contacts(self, account: Account) -> None:
        """Raise UnknownAccountError with whom to ask, if the account is a member's."""
        barred = await self._get_barred_reason(account)
        if barred:
            raise AccountRefused(f"Nothing was done: this Slack account {barred}.")
        contacts = await threads.run_in_answer_thread(self.list_contacts)
        raise UnknownAccountError(account, contacts, with_names=True)

    def list_contacts(self) -> Sequence[Person]:
        """Return the people whom an unknown person asks: the owners of areas."""
        organisation = self._policies.get_policy().organisation
        owners = dict.fromkeys(
            owner for area in organisation.areas.values() for owner in area.owners
        )
        return [organisation.people[one] for one in owners if one in organisation.people]

    def get_user(self, person: Person) -> str:
        """Return the user (U…) of a person in our workspace; "" if there is none."""
        return next((one.user for one in person.slack if one.team == self._team), "")

    def get_time_zone(self, account: Account) -> str:
        """Return the account's time zone as last read from Slack, or UTC."""
        status = self._account_statuses.get(account)
        return status.zone if status else "UTC"

    async def run_as_person(
        self, account: Account, action: Callable[[Person, Policy], Result]
    ) -> Result:
        """Call *action* in a thread with the person and the policy, and return its result.

        The policy is read in the same thread, and once: each change of threads and each check of
        the policy files takes as long as a short answer.

        Raises:
            AccountRefused: the account is unknown or must not act.
            NoPolicyError: there is no valid policy.
        """
        status = self._get_fresh_status(account)
        if status is None or status.barred_reason:
            await self.get_person(account)
        try:
            return await threads.run_in_answer_thread(
                lambda: action(*self._find_person_or_report(account))
            )
        except UnknownAccountError:
            await self._name_contacts(account)
            raise

    def _find_person_or_report(self, account: Account) -> tuple[Person, Policy]:
        try:
            return self._find_person(account)
        except AccountRefused as refusal:
            self._on_unknown_account(account, str(refusal))
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
            raise UnknownAccountError(account)
        return person, policy

    def _is_account_ours(self, person: Person, account: Account) -> bool:
        """Return whether the account belongs to our workspace or its organisation."""
        return account.team == self._team or any(
            known.user == account.user and known.enterprise == account.enterprise
            for known in person.slack
        )

    async def _get_barred_reason(self, account: Account) -> str:
        status = self._get_fresh_status(account)
        if status is None:
            check = self._pending_checks.get(account)
            if check is None:
                check = asyncio.create_task(self._check_account(account))
                self._pending_checks[account] = check
                check.add_done_callback(lambda _: self._pending_checks.pop(account))
            # Others may wait for the same answer after the first caller is cancelled.
            status = await asyncio.shield(check)
        return status.barred_reason

    async def _check_account(self, account: Account) -> _AccountStatus:
        """Read the account from Slack and cache its status."""
        user = await self._fetch_user(account)
        status = _AccountStatus(
            get_barred_reason(user, account), self._clock(), _get_user_time_zone(user)
        )
        if len(self._account_statuses) >= _MAX_CACHED_ACCOUNTS:
            self._account_statuses.clear()
        self._account_statuses[account] = status
        return status

    def _get_fresh_status(self, account: Account) -> _AccountStatus | None:
        """Return the cached status; None if there is none or it is too old."""
        status = self._account_statuses.get(account)
        is_old = status is None or self._clock() - status.checked_at > _CACHE_SECONDS
        return None if is_old else status

    async def _fetch_user(self, account: Account) -> Mapping[str, Any]:
        """Read the account from Slack. Raises AccountRefused if Slack does not answer."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                answer = await self._client.users_info(user=account.user)
        except CALL_ERRORS as error:
            cause = get_error_cause(error)
            _log.warning("cannot read the Slack account %s: %s", account.user, cause)
            if cause in _TOKEN_ERRORS:
                raise AccountRefused(
                    f"Nothing was done: Keyturn cannot read your Slack account ({cause}). Ask a "
                    "Keyturn administrator to run keyturn doctor."
                ) from None
            raise AccountRefused(
                "Nothing was done: Slack did not confirm your account. Try again in a minute."
            ) from None
        return cast("Mapping[str, Any]", answer.get("user") or {})


def _get_user_time_zone(user: Mapping[str, Any]) -> str:
    zone = str(user.get("tz") or "")
    return zone if is_time_zone(zone) and zone != "Etc/UTC" else "UTC"


def get_barred_reason(user: Mapping[str, Any], account: Account) -> str:
    """Return why an account must not act, by its users.info; "" if it may."""
    for flag, reason in _BARRING_FLAGS.items():
        if user.get(flag):
            return reason
    organisation: Mapping[str, Any] = user.get("enterprise_user") or {}
    if user.get("id") != account.user:
        return _OTHER_WORKSPACE
    if user.get("team_id") == account.team:
        return ""
    same = bool(account.enterprise) and organisation.get("enterprise_id") == account.enterprise
    return "" if same else _OTHER_WORKSPACE
