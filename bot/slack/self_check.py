"""A check-up of the way to Slack: tokens, scopes, workspace, clock and channels. Changes nothing.

Scopes are told in the header X-OAuth-Scopes, Slack's time in Date, of every answer.
Source: https://docs.slack.dev/reference/methods/auth.test
"""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ssl import SSLError
from typing import Any, cast
from urllib.parse import urlsplit

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientError,
    ClientHttpProxyError,
    ClientProxyConnectionError,
)
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    create_warning_result,
)
from bot.slack import manifest
from bot.slack.client import get_error_code, get_retry_seconds, is_retryable
from bot.slack.identity import get_barred_reason
from bot.slack.payloads import Account

_PROXY_HINT = "does this machine need HTTPS_PROXY to get out?"


def explain_failure(error: Exception, *, proxy: str = "", authorities: str = "") -> str:
    """Say it of what aiohttp raised.

    proxy: the address of HTTPS_PROXY, "" without; of it, only where it is is said. authorities:
    the file of SSL_CERT_FILE, "" without.
    """
    if isinstance(error, ClientConnectorCertificateError):
        return (
            "the certificate shown for Slack is not one we trust: "
            f"{_describe_authorities_fix(authorities)}"
        )
    if proxy:
        return _explain_proxy_failure(error, _get_proxy_address(proxy))
    if isinstance(error, TimeoutError):
        return f"Slack did not answer in time: {_PROXY_HINT}"
    return f"Slack was not reached ({type(error).__name__}): {_PROXY_HINT}"


def _explain_proxy_failure(error: Exception, proxy_address: str) -> str:
    """Say what the proxy has to do with it. at: where it is, "" if it is no address."""
    match error:
        case _ if not proxy_address:
            return "HTTPS_PROXY is no address of a proxy: it must be http://HOST:PORT"
        case ClientHttpProxyError(status=407):
            return f"the proxy {proxy_address} wants a login: HTTPS_PROXY=http://NAME:PASSWORD@{proxy_address}"
        case ClientHttpProxyError():
            return (
                f"the proxy {proxy_address} does not lead there (it answered {error.status}): "
                "have it let "
                "us through to slack.com and wss-primary.slack.com, port 443"
            )
        case ClientProxyConnectionError() | ClientConnectorDNSError():
            return (
                f"the proxy {proxy_address} of HTTPS_PROXY does not answer: is that its address?"
            )
        case _:
            return (
                f"Slack was not reached through the proxy {proxy_address} ({type(error).__name__})"
            )


def _get_proxy_address(proxy: str) -> str:
    """Return host and port of a proxy, without its password; "" if that is none."""
    try:
        parts = urlsplit(proxy)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    return f"{parts.hostname}:{port}" if port else parts.hostname


def _describe_authorities_fix(authorities: str) -> str:
    """Say what is to be done about the authorities that we trust."""
    if not authorities:
        return "if a proxy on the way shows its own, SSL_CERT_FILE must be its authority's file"
    try:
        ssl.create_default_context(cafile=authorities)
    except SSLError:
        return f"{authorities}, as SSL_CERT_FILE says, holds no certificates (PEM)"
    except OSError as trouble:
        return f"{authorities}, as SSL_CERT_FILE says, cannot be read ({trouble.strerror})"
    return f"{authorities}, as SSL_CERT_FILE says, does not hold the authority that signed it"


# The accounts of each person, by the person's name in the policy.
AccountsByPerson = Mapping[str, Sequence[Account]]

_PEOPLE_SUBJECT = "the people"
# users.info takes a hundred a minute and more.
_MOST, _AT_ONCE = 100, 5
_UNKNOWN_USER_ERRORS = frozenset({"user_not_found", "user_not_visible", "users_not_found"})
_MEMBER_ID_HINT = "in Slack, the profile, ⋮, Copy member ID"


async def check_accounts(
    client: AsyncWebClient, workspace: str, accounts_by_person: AccountsByPerson
) -> AsyncGenerator[CheckResult]:
    """Yield whom Keyturn would not know, and in one line how many it would. team: ours, T…."""
    ours = [
        (person, account)
        for person, accounts in accounts_by_person.items()
        for account in accounts
        if account.team == workspace or account.enterprise
    ]
    if not ours:
        yield create_error_result(
            _PEOPLE_SUBJECT,
            f"none in people.yaml has an account of {workspace}: put their ids there "
            f"({_MEMBER_ID_HINT})",
        )
        return
    without = sorted(set(accounts_by_person) - {person for person, _ in ours})
    if without:
        few = ", ".join(without[:10]) + (", …" if len(without) > 10 else "")
        yield create_warning_result(
            _PEOPLE_SUBJECT, f"without an account of {workspace}, so not known in Slack: {few}"
        )
    asking = asyncio.Semaphore(_AT_ONCE)
    looked = [_check_account(client, asking, *each) for each in ours[:_MOST]]
    try:
        found = [one for one in await asyncio.gather(*looked) if one is not None]
    except (SlackClientError, ClientError, OSError) as trouble:
        said = (
            get_error_code(trouble)
            if isinstance(trouble, SlackApiError)
            else type(trouble).__name__
        )
        yield create_warning_result(
            _PEOPLE_SUBJECT, f"Slack did not say of all whether they are there ({said})"
        )
        return
    for one in found:
        yield one
    if not found:
        few = f"the first {_MOST}" if len(ours) > _MOST else "all"
        yield create_ok_result(
            _PEOPLE_SUBJECT, f"are known to Slack: {few} of {len(ours)} accounts"
        )


async def _check_account(
    client: AsyncWebClient, semaphore: asyncio.Semaphore, person: str, account: Account
) -> CheckResult | None:
    """Return what is wrong with one account."""
    about = f"{_PEOPLE_SUBJECT}: {person}"
    try:
        async with semaphore:
            answer = await client.users_info(user=account.user)
    except SlackApiError as refused:
        if get_error_code(refused) not in _UNKNOWN_USER_ERRORS:
            raise
        return create_error_result(
            about, f"{account.user} is nobody there: put the right id ({_MEMBER_ID_HINT})"
        )
    user = cast("Mapping[str, Any]", answer.get("user") or {})
    barred = get_barred_reason(user, account)
    if barred:
        return create_warning_result(
            about, f"{account.user} {barred}, and may do nothing: take it out"
        )
    return None


# Slack's requests are refused when they seem five minutes old; a part of that is lost on the way.
_MOST_SECONDS, _SOME_SECONDS = 240, 30
_BOT_TOKEN, _APP_TOKEN = "the bot's token", "the app's token"
# ValueError: an address of a proxy that is none.
_CONNECTION_ERRORS = (SlackClientError, ClientError, OSError, ValueError)
_APP_SETTINGS_HINT = "OAuth & Permissions of the Slack app"
_APP_LEVEL_HINT = (
    "make one with connections:write under Basic Information, App-Level Tokens, of the Slack app, "
    "and set KEYTURN_SLACK_APP_TOKEN to it"
)
_CHANNEL_ID_PATTERN = re.compile(r"[CG][A-Z0-9]+")
_CHANNEL_ID_HINT = (
    "it begins with C and is at the end of what a click on the channel's name shows (About)"
)
_CHANNEL_ERROR_MESSAGES = {
    "not_in_channel": "the bot is not in it",
    "channel_not_found": "it is not there, or is private and the bot is not in it",
    "is_archived": "it is archived",
}


@dataclass(frozen=True)
class SlackConnectionSettings:
    """How we reach Slack and it us.

    base_url: "" without. channels: what each is for, by C…. people: whom the policy knows, None if
    it is not valid. authorities: the file of SSL_CERT_FILE, "" without.
    """

    workspace: str
    app_token: str
    signing_secret: str
    base_url: str
    channels: Mapping[str, str]
    people: AccountsByPerson | None = None
    authorities: str = ""


async def check_slack_connection(
    client: AsyncWebClient,
    settings: SlackConnectionSettings,
    clock: Callable[[], float] = time.time,
) -> AsyncGenerator[CheckResult]:
    """Yield each finding as it is known."""
    began = clock()
    try:
        answer = await client.auth_test()
    except SlackApiError as refused:
        yield create_error_result(
            _BOT_TOKEN, _describe_failure(refused, f"take the right one from {_APP_SETTINGS_HINT}")
        )
        return
    except _CONNECTION_ERRORS as trouble:
        why = explain_failure(trouble, proxy=client.proxy or "", authorities=settings.authorities)
        yield create_error_result("the way to Slack", why)
        return
    moment = (began + clock()) / 2
    yield create_ok_result(_BOT_TOKEN, f"is taken: @{answer.get('user')} in {answer.get('team')}")
    team = str(answer.get("team_id", ""))
    yield _check_workspace(team, settings.workspace)
    headers = cast("Mapping[str, str]", answer.headers)
    yield _check_scopes(_get_header(headers, "x-oauth-scopes"))
    yield _check_clock(_get_header(headers, "date"), moment)
    yield await _check_incoming_requests(client, settings)
    for channel, purpose in settings.channels.items():
        if _CHANNEL_ID_PATTERN.fullmatch(channel):
            yield await _check_channel(client, channel, purpose)
        else:
            yield create_error_result(
                f"channel {channel}", f"{purpose}: that is no id: {_CHANNEL_ID_HINT}"
            )
    if settings.people is not None and team == settings.workspace:
        async for finding in check_accounts(client, settings.workspace, settings.people):
            yield finding


def _check_workspace(token_workspace: str, configured_workspace: str) -> CheckResult:
    if token_workspace == configured_workspace:
        return create_ok_result("the workspace", f"is {token_workspace}")
    return create_error_result(
        "the workspace",
        f"the token is for {token_workspace} and KEYTURN_SLACK_TEAM says {configured_workspace}: "
        "set it right",
    )


def _check_scopes(granted_scopes: str) -> CheckResult:
    has = {scope.strip() for scope in granted_scopes.split(",") if scope.strip()}
    asked = manifest.list_scopes()
    wanted, optional = set(asked["bot"]), set(asked["bot_optional"])
    needed = wanted - optional
    if not has:
        return create_warning_result("scopes", "Slack did not tell which there are")
    if missing := sorted(needed - has):
        return create_error_result(
            "scopes",
            f"{_join_names(missing)} missing: add them under {_APP_SETTINGS_HINT}, and install "
            "it again",
        )
    if more := sorted(has - wanted):
        return create_warning_result(
            "scopes", f"{_join_names(more)} are not needed: better taken away"
        )
    if without := sorted(optional - has):
        return create_ok_result(
            "scopes", f"are those that are needed, without the optional {_join_names(without)}"
        )
    return create_ok_result("scopes", "are those that are needed, and the optional ones")


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _check_clock(slack_date: str, local_time: float) -> CheckResult:
    try:
        apart = local_time - parsedate_to_datetime(slack_date).timestamp()
    except ValueError:
        return create_warning_result("the clock", "Slack did not tell the time")
    words = f"is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} Slack's"
    if abs(apart) > _MOST_SECONDS:
        return create_error_result(
            "the clock", f"{words}: set it, best by NTP, or Slack's requests are refused"
        )
    if abs(apart) > _SOME_SECONDS:
        return create_warning_result("the clock", f"{words}: keep it by NTP")
    return create_ok_result("the clock", "agrees with Slack's")


async def _check_incoming_requests(
    client: AsyncWebClient, settings: SlackConnectionSettings
) -> CheckResult:
    """Look at how Slack's requests reach us."""
    if not settings.app_token:
        address = f"{settings.base_url}/slack/events"
        if not settings.base_url.startswith("https://"):
            return create_error_result(
                "the way in",
                "without an app token Slack must reach us over HTTPS: set KEYTURN_BASE_URL, or "
                "use Socket Mode, for which nothing is open to the outside",
            )
        return create_ok_result(
            "the way in", f"is HTTP: the Slack app's addresses must be {address}"
        )
    try:
        await client.apps_connections_open(app_token=settings.app_token)
    except _CONNECTION_ERRORS as trouble:
        return create_error_result(_APP_TOKEN, _describe_failure(trouble, _APP_LEVEL_HINT))
    also = "; HTTP is open as well" if settings.signing_secret else ""
    return create_ok_result(_APP_TOKEN, f"opens Socket Mode{also}")


async def _check_channel(client: AsyncWebClient, channel: str, purpose: str) -> CheckResult:
    about = f"channel {channel}"
    try:
        answer = await client.conversations_info(channel=channel)
    except SlackApiError as refused:
        why = _CHANNEL_ERROR_MESSAGES.get(get_error_code(refused))
        if why is None:
            return create_error_result(
                about, f"{purpose}: {_describe_failure(refused, f'look at {_APP_SETTINGS_HINT}')}"
            )
        return create_error_result(
            about, f"{purpose}: {why}: type /invite @Keyturn there, or set another"
        )
    except _CONNECTION_ERRORS as trouble:
        return create_error_result(about, f"{purpose}: {_describe_failure(trouble, 'try again')}")
    found = cast("Mapping[str, Any]", answer.get("channel") or {})
    name = f"#{found.get('name')}"
    if found.get("is_archived"):
        return create_error_result(about, f"{purpose}: {name} is archived: set another")
    if not found.get("is_member"):
        return create_error_result(
            about, f"{purpose}: the bot is not in {name}: type /invite @Keyturn there"
        )
    return create_ok_result(about, f"{purpose}: the bot is in {name}")


def _describe_failure(error: Exception, fix: str) -> str:
    """Say why Slack said no, or why it said nothing."""
    if not isinstance(error, SlackApiError):
        return f"{explain_failure(error)}: try again"
    if (seconds := get_retry_seconds(error)) is not None:
        return f"Slack is asked too often: ask the doctor again in {seconds:.0f} s"
    if is_retryable(error):
        return (
            f"Slack has a trouble of its own ({get_error_code(error)}): ask the doctor again later"
        )
    needed = str(cast("object", error.response.get("needed") or ""))
    lacks = f" (it lacks {needed})" if needed else ""
    return f"Slack says {get_error_code(error)}{lacks}: {fix}"


def _get_header(headers: Mapping[str, str], name: str) -> str:
    return next((headers[each] for each in headers if each.lower() == name), "")
