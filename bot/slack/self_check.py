"""Check the connection to Slack: tokens, scopes, workspace, clock, channels. Changes nothing.

Every answer has the scopes in its header X-OAuth-Scopes and Slack's time in Date.
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
from bot.slack.client import get_error_cause, get_retry_seconds, is_retryable
from bot.slack.identity import get_barred_reason
from bot.slack.payloads import Account

_PROXY_HINT = "set HTTPS_PROXY if this host needs a proxy"


def explain_failure(error: Exception, *, proxy: str = "", authorities: str = "") -> str:
    """Describe an error that aiohttp raised, with a fix.

    Args:
        error: the error.
        proxy: value of HTTPS_PROXY, "" without; the text contains only its host and port.
        authorities: value of SSL_CERT_FILE, "" without.
    """
    if isinstance(error, ClientConnectorCertificateError):
        return (
            "the certificate that Slack's address presents is not trusted: "
            f"{_describe_authorities_fix(authorities)}"
        )
    if proxy:
        return _explain_proxy_failure(error, _get_proxy_address(proxy))
    if isinstance(error, TimeoutError):
        return f"Slack did not answer in time: {_PROXY_HINT}"
    return f"cannot reach Slack ({type(error).__name__}): {_PROXY_HINT}"


def _explain_proxy_failure(error: Exception, proxy_address: str) -> str:
    """Describe a failure with a proxy. proxy_address: host and port; "" if malformed."""
    match error:
        case _ if not proxy_address:
            return "HTTPS_PROXY is not valid: set it to http://HOST:PORT"
        case ClientHttpProxyError(status=407):
            return (
                f"the proxy {proxy_address} requires a login: set "
                f"HTTPS_PROXY=http://NAME:PASSWORD@{proxy_address}"
            )
        case ClientHttpProxyError():
            return (
                f"the proxy {proxy_address} refuses the connection (status {error.status}): allow "
                "slack.com and wss-primary.slack.com, port 443"
            )
        case ClientProxyConnectionError() | ClientConnectorDNSError():
            return f"the proxy {proxy_address} does not answer: check the address in HTTPS_PROXY"
        case _:
            return f"cannot reach Slack through the proxy {proxy_address} ({type(error).__name__})"


def _get_proxy_address(proxy: str) -> str:
    """Return host and port of a proxy, without its password; "" if malformed."""
    try:
        parts = urlsplit(proxy)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    return f"{parts.hostname}:{port}" if port else parts.hostname


def _describe_authorities_fix(authorities: str) -> str:
    """Return how to fix the trusted certificate authorities."""
    if not authorities:
        return "if a proxy presents its own, set SSL_CERT_FILE to the file of its authority"
    try:
        ssl.create_default_context(cafile=authorities)
    except SSLError:
        return f"{authorities} (SSL_CERT_FILE) contains no PEM certificates"
    except OSError as error:
        return f"cannot read {authorities} (SSL_CERT_FILE): {error.strerror}"
    return f"{authorities} (SSL_CERT_FILE) does not contain the authority that signed it"


# Slack accounts by person id.
AccountsByPerson = Mapping[str, Sequence[Account]]

_PEOPLE_SUBJECT = "people"
# Slack allows at least 100 calls of users.info a minute.
_MAX_ACCOUNTS, _MAX_PARALLEL_CALLS = 100, 5
_UNKNOWN_USER_ERRORS = frozenset({"user_not_found", "user_not_visible", "users_not_found"})
_MEMBER_ID_HINT = "in Slack: profile, ⋮, Copy member ID"


async def check_accounts(
    client: AsyncWebClient, workspace: str, accounts_by_person: AccountsByPerson
) -> AsyncGenerator[CheckResult]:
    """Yield the accounts with a problem, or one result if all are fine. workspace: ours, T…."""
    ours = [
        (person, account)
        for person, accounts in accounts_by_person.items()
        for account in accounts
        if account.team == workspace or account.enterprise
    ]
    if not ours:
        yield create_error_result(
            _PEOPLE_SUBJECT,
            f"people.yaml contains no account of {workspace}: add the member IDs "
            f"({_MEMBER_ID_HINT})",
        )
        return
    without = sorted(set(accounts_by_person) - {person for person, _ in ours})
    if without:
        few = ", ".join(without[:10]) + (", …" if len(without) > 10 else "")
        yield create_warning_result(
            _PEOPLE_SUBJECT, f"without an account of {workspace}, so unable to use Slack: {few}"
        )
    semaphore = asyncio.Semaphore(_MAX_PARALLEL_CALLS)
    checks = [_check_account(client, semaphore, *each) for each in ours[:_MAX_ACCOUNTS]]
    try:
        found = [one for one in await asyncio.gather(*checks) if one is not None]
    except (SlackClientError, ClientError, OSError) as error:
        cause = get_error_cause(error)
        yield create_warning_result(_PEOPLE_SUBJECT, f"cannot check all accounts ({cause})")
        return
    for one in found:
        yield one
    if not found:
        few = f"the first {_MAX_ACCOUNTS}" if len(ours) > _MAX_ACCOUNTS else "all"
        yield create_ok_result(
            _PEOPLE_SUBJECT, f"have valid Slack accounts: {few} of {len(ours)} checked"
        )


async def _check_account(
    client: AsyncWebClient, semaphore: asyncio.Semaphore, person: str, account: Account
) -> CheckResult | None:
    """Return what is wrong with one account; None if it is fine."""
    about = f"{_PEOPLE_SUBJECT}: {person}"
    try:
        async with semaphore:
            answer = await client.users_info(user=account.user)
    except SlackApiError as error:
        if get_error_cause(error) not in _UNKNOWN_USER_ERRORS:
            raise
        return create_error_result(
            about, f"{account.user} is unknown in Slack: correct the member ID ({_MEMBER_ID_HINT})"
        )
    user = cast("Mapping[str, Any]", answer.get("user") or {})
    barred = get_barred_reason(user, account)
    if barred:
        return create_warning_result(
            about, f"{account.user} {barred} and cannot use Keyturn: remove it"
        )
    return None


# Requests from Slack are refused if their timestamp is five minutes off, including transit time.
_MAX_CLOCK_ERROR, _WARN_CLOCK_ERROR = 240, 30
_BOT_TOKEN, _APP_TOKEN = "bot token", "app token"
# ValueError: a malformed proxy address.
_CONNECTION_ERRORS = (SlackClientError, ClientError, OSError, ValueError)
_APP_SETTINGS_HINT = "OAuth & Permissions of the Slack app"
_APP_LEVEL_HINT = (
    "create one with connections:write under Basic Information, App-Level Tokens, of the Slack "
    "app, and set KEYTURN_SLACK_APP_TOKEN to it"
)
_CHANNEL_ID_PATTERN = re.compile(r"[CG][A-Z0-9]+")
_CHANNEL_ID_HINT = (
    "copy the channel ID, which begins with C, from the end of the channel's About tab"
)
_CHANNEL_ERROR_MESSAGES = {
    "not_in_channel": "the bot is not in it",
    "channel_not_found": "it does not exist, or is private and the bot is not in it",
    "is_archived": "it is archived",
}


@dataclass(frozen=True)
class SlackConnectionSettings:
    """The settings to check."""

    workspace: str
    """T…."""
    app_token: str
    signing_secret: str
    base_url: str
    """Of the web pages; "" without."""
    channels: Mapping[str, str]
    """Purposes by channel id (C…)."""
    people: AccountsByPerson | None = None
    """None if the policy is not valid."""
    authorities: str = ""
    """Value of SSL_CERT_FILE; "" without."""


async def check_slack_connection(
    client: AsyncWebClient,
    settings: SlackConnectionSettings,
    clock: Callable[[], float] = time.time,
) -> AsyncGenerator[CheckResult]:
    """Yield each result as soon as it is known."""
    began = clock()
    try:
        answer = await client.auth_test()
    except SlackApiError as error:
        yield create_error_result(
            _BOT_TOKEN, _describe_failure(error, f"copy it from {_APP_SETTINGS_HINT}")
        )
        return
    except _CONNECTION_ERRORS as error:
        cause = explain_failure(error, proxy=client.proxy or "", authorities=settings.authorities)
        yield create_error_result("connection to Slack", cause)
        return
    local_time = (began + clock()) / 2
    yield create_ok_result(_BOT_TOKEN, f"is valid: @{answer.get('user')} in {answer.get('team')}")
    team = str(answer.get("team_id", ""))
    yield _check_workspace(team, settings.workspace)
    headers = cast("Mapping[str, str]", answer.headers)
    yield _check_scopes(_get_header(headers, "x-oauth-scopes"))
    yield _check_clock(_get_header(headers, "date"), local_time)
    yield await _check_incoming_requests(client, settings)
    for channel, purpose in settings.channels.items():
        if _CHANNEL_ID_PATTERN.fullmatch(channel):
            yield await _check_channel(client, channel, purpose)
        else:
            yield create_error_result(
                f"channel {channel}", f"{purpose}: not a channel ID: {_CHANNEL_ID_HINT}"
            )
    if settings.people is not None and team == settings.workspace:
        async for result in check_accounts(client, settings.workspace, settings.people):
            yield result


def _check_workspace(token_workspace: str, configured_workspace: str) -> CheckResult:
    if token_workspace == configured_workspace:
        return create_ok_result("workspace", f"is {token_workspace}")
    return create_error_result(
        "workspace",
        f"the bot token is for {token_workspace}, but KEYTURN_SLACK_TEAM is "
        f"{configured_workspace}: correct one of them",
    )


def _check_scopes(granted_scopes: str) -> CheckResult:
    granted = {scope.strip() for scope in granted_scopes.split(",") if scope.strip()}
    scopes = manifest.list_scopes()
    wanted, optional = set(scopes["bot"]), set(scopes["bot_optional"])
    needed = wanted - optional
    if not granted:
        return create_warning_result("scopes", "unknown: Slack did not return them")
    if missing := sorted(needed - granted):
        return create_error_result(
            "scopes",
            f"{', '.join(missing)} missing: add them under {_APP_SETTINGS_HINT}, and reinstall "
            "the app",
        )
    if more := sorted(granted - wanted):
        return create_warning_result("scopes", f"{', '.join(more)} not needed: remove them")
    if without := sorted(optional - granted):
        lost = "; ".join(f"{scope} ({manifest.LOST_WITHOUT[scope]})" for scope in without)
        return create_ok_result("scopes", f"are complete, without the optional {lost}")
    return create_ok_result("scopes", "are complete, with the optional ones")


def _check_clock(slack_date: str, local_time: float) -> CheckResult:
    try:
        difference = local_time - parsedate_to_datetime(slack_date).timestamp()
    except ValueError:
        return create_warning_result("clock", "cannot be compared: Slack did not return its time")
    text = f"is {abs(difference):.0f} s {'ahead of' if difference > 0 else 'behind'} Slack's"
    if abs(difference) > _MAX_CLOCK_ERROR:
        return create_error_result(
            "clock", f"{text}: synchronise it by NTP, or requests from Slack are refused"
        )
    if abs(difference) > _WARN_CLOCK_ERROR:
        return create_warning_result("clock", f"{text}: synchronise it by NTP")
    return create_ok_result("clock", "agrees with Slack's")


async def _check_incoming_requests(
    client: AsyncWebClient, settings: SlackConnectionSettings
) -> CheckResult:
    """Check how requests from Slack arrive."""
    if not settings.app_token:
        address = f"{settings.base_url}/slack/events"
        if not settings.base_url.startswith("https://"):
            return create_error_result(
                "requests from Slack",
                "arrive over HTTPS without an app token: set KEYTURN_BASE_URL, or use Socket "
                "Mode, which needs no open port",
            )
        return create_ok_result(
            "requests from Slack", f"arrive over HTTP: set the Slack app's URLs to {address}"
        )
    try:
        await client.apps_connections_open(app_token=settings.app_token)
    except _CONNECTION_ERRORS as error:
        return create_error_result(_APP_TOKEN, _describe_failure(error, _APP_LEVEL_HINT))
    also = "; HTTP is enabled as well" if settings.signing_secret else ""
    return create_ok_result(_APP_TOKEN, f"opens Socket Mode{also}")


async def _check_channel(client: AsyncWebClient, channel: str, purpose: str) -> CheckResult:
    about = f"channel {channel}"
    try:
        answer = await client.conversations_info(channel=channel)
    except SlackApiError as error:
        return _explain_channel_error(about, purpose, error)
    except _CONNECTION_ERRORS as error:
        return create_error_result(about, f"{purpose}: {_describe_failure(error, 'try again')}")
    found = cast("Mapping[str, Any]", answer.get("channel") or {})
    name = f"#{found.get('name')}"
    if found.get("is_archived"):
        return create_error_result(about, f"{purpose}: {name} is archived: set another channel")
    if not found.get("is_member"):
        return create_error_result(
            about, f"{purpose}: the bot is not in {name}: type /invite @Keyturn there"
        )
    if found.get("is_ext_shared") or found.get("is_pending_ext_shared"):
        return create_warning_result(
            about,
            f"{purpose}: {name} is shared with another organisation, whose people see its cards: "
            "set a channel of your own",
        )
    return create_ok_result(about, f"{purpose}: the bot is in {name}")


def _explain_channel_error(about: str, purpose: str, error: SlackApiError) -> CheckResult:
    code = get_error_cause(error)
    if code == "missing_scope":
        needed = str(cast("object", error.response.get("needed") or "channels:read"))
        return create_warning_result(
            about,
            f"{purpose}: cannot be checked without the optional scope {needed}: add the scope, or "
            "look whether the bot is in it",
        )
    cause = _CHANNEL_ERROR_MESSAGES.get(code)
    if cause is None:
        return create_error_result(
            about, f"{purpose}: {_describe_failure(error, f'check {_APP_SETTINGS_HINT}')}"
        )
    return create_error_result(
        about, f"{purpose}: {cause}: type /invite @Keyturn there, or set another channel"
    )


def _describe_failure(error: Exception, fix: str) -> str:
    """Describe an error that Slack returned, or a failed connection, with a fix."""
    if not isinstance(error, SlackApiError):
        return f"{explain_failure(error)}: try again"
    if (seconds := get_retry_seconds(error)) is not None:
        return f"Slack limits the rate of calls: run keyturn doctor again in {seconds:.0f} s"
    if is_retryable(error):
        code = get_error_cause(error)
        return f"Slack has an internal error ({code}): run keyturn doctor again later"
    needed = str(cast("object", error.response.get("needed") or ""))
    missing = f" (missing scope: {needed})" if needed else ""
    return f"Slack returned {get_error_cause(error)}{missing}: {fix}"


def _get_header(headers: Mapping[str, str], name: str) -> str:
    return next((headers[each] for each in headers if each.lower() == name), "")
