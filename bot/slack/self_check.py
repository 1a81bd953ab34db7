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

from bot.model.check_result import CheckResult, error, ok, warning
from bot.slack import manifest
from bot.slack.client import error_of, is_away, retry_after
from bot.slack.identity import why_barred
from bot.slack.payloads import Account

_IN_GENERAL = "does this machine need HTTPS_PROXY to get out?"


def explain_failure(trouble: Exception, *, proxy: str = "", authorities: str = "") -> str:
    """Say it of what aiohttp raised.

    proxy: the address of HTTPS_PROXY, "" without; of it, only where it is is said. authorities:
    the file of SSL_CERT_FILE, "" without.
    """
    if isinstance(trouble, ClientConnectorCertificateError):
        return f"the certificate shown for Slack is not one we trust: {_of(authorities)}"
    if proxy:
        return _on_the_way(trouble, _at(proxy))
    if isinstance(trouble, TimeoutError):
        return f"Slack did not answer in time: {_IN_GENERAL}"
    return f"Slack was not reached ({type(trouble).__name__}): {_IN_GENERAL}"


def _on_the_way(trouble: Exception, at: str) -> str:
    """Say what the proxy has to do with it. at: where it is, "" if it is no address."""
    match trouble:
        case _ if not at:
            return "HTTPS_PROXY is no address of a proxy: it must be http://HOST:PORT"
        case ClientHttpProxyError(status=407):
            return f"the proxy {at} wants a login: HTTPS_PROXY=http://NAME:PASSWORD@{at}"
        case ClientHttpProxyError():
            return (
                f"the proxy {at} does not lead there (it answered {trouble.status}): have it let "
                "us through to slack.com and wss-primary.slack.com, port 443"
            )
        case ClientProxyConnectionError() | ClientConnectorDNSError():
            return f"the proxy {at} of HTTPS_PROXY does not answer: is that its address?"
        case _:
            return f"Slack was not reached through the proxy {at} ({type(trouble).__name__})"


def _at(proxy: str) -> str:
    """Return host and port of a proxy, without its password; "" if that is none."""
    try:
        parts = urlsplit(proxy)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    return f"{parts.hostname}:{port}" if port else parts.hostname


def _of(authorities: str) -> str:
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
People = Mapping[str, Sequence[Account]]

_ABOUT = "the people"
# users.info takes a hundred a minute and more.
_MOST, _AT_ONCE = 100, 5
_NOBODY = frozenset({"user_not_found", "user_not_visible", "users_not_found"})
_WHERE = "in Slack, the profile, ⋮, Copy member ID"


async def census(client: AsyncWebClient, team: str, people: People) -> AsyncGenerator[CheckResult]:
    """Yield whom Keyturn would not know, and in one line how many it would. team: ours, T…."""
    ours = [
        (person, account)
        for person, accounts in people.items()
        for account in accounts
        if account.team == team or account.enterprise
    ]
    if not ours:
        yield error(
            _ABOUT, f"none in people.yaml has an account of {team}: put their ids there ({_WHERE})"
        )
        return
    without = sorted(set(people) - {person for person, _ in ours})
    if without:
        few = ", ".join(without[:10]) + (", …" if len(without) > 10 else "")
        yield warning(_ABOUT, f"without an account of {team}, so not known in Slack: {few}")
    asking = asyncio.Semaphore(_AT_ONCE)
    looked = [_look(client, asking, *each) for each in ours[:_MOST]]
    try:
        found = [one for one in await asyncio.gather(*looked) if one is not None]
    except (SlackClientError, ClientError, OSError) as trouble:
        said = error_of(trouble) if isinstance(trouble, SlackApiError) else type(trouble).__name__
        yield warning(_ABOUT, f"Slack did not say of all whether they are there ({said})")
        return
    for one in found:
        yield one
    if not found:
        few = f"the first {_MOST}" if len(ours) > _MOST else "all"
        yield ok(_ABOUT, f"are known to Slack: {few} of {len(ours)} accounts")


async def _look(
    client: AsyncWebClient, asking: asyncio.Semaphore, person: str, account: Account
) -> CheckResult | None:
    """Return what is wrong with one account."""
    about = f"{_ABOUT}: {person}"
    try:
        async with asking:
            answer = await client.users_info(user=account.user)
    except SlackApiError as refused:
        if error_of(refused) not in _NOBODY:
            raise
        return error(about, f"{account.user} is nobody there: put the right id ({_WHERE})")
    user = cast("Mapping[str, Any]", answer.get("user") or {})
    barred = why_barred(user, account)
    if barred:
        return warning(about, f"{account.user} {barred}, and may do nothing: take it out")
    return None


# Slack's requests are refused when they seem five minutes old; a part of that is lost on the way.
_MOST_SECONDS, _SOME_SECONDS = 240, 30
_BOT_TOKEN, _APP_TOKEN = "the bot's token", "the app's token"
# ValueError: an address of a proxy that is none.
_TROUBLES = (SlackClientError, ClientError, OSError, ValueError)
_CHECKUP_WHERE = "OAuth & Permissions of the Slack app"
_MAKE_ONE = (
    "make one with connections:write under Basic Information, App-Level Tokens, of the Slack app, "
    "and set KEYTURN_SLACK_APP_TOKEN to it"
)
_CHANNEL = re.compile(r"[CG][A-Z0-9]+")
_ITS_ID = "it begins with C and is at the end of what a click on the channel's name shows (About)"
_PLACES = {
    "not_in_channel": "the bot is not in it",
    "channel_not_found": "it is not there, or is private and the bot is not in it",
    "is_archived": "it is archived",
}


@dataclass(frozen=True)
class Way:
    """How we reach Slack and it us.

    base_url: "" without. channels: what each is for, by C…. people: whom the policy knows, None if
    it is not valid. authorities: the file of SSL_CERT_FILE, "" without.
    """

    team: str
    app_token: str
    signing_secret: str
    base_url: str
    channels: Mapping[str, str]
    people: People | None = None
    authorities: str = ""


async def findings(
    client: AsyncWebClient, way: Way, clock: Callable[[], float] = time.time
) -> AsyncGenerator[CheckResult]:
    """Yield each finding as it is known."""
    began = clock()
    try:
        answer = await client.auth_test()
    except SlackApiError as refused:
        yield error(_BOT_TOKEN, _no(refused, f"take the right one from {_CHECKUP_WHERE}"))
        return
    except _TROUBLES as trouble:
        why = explain_failure(trouble, proxy=client.proxy or "", authorities=way.authorities)
        yield error("the way to Slack", why)
        return
    moment = (began + clock()) / 2
    yield ok(_BOT_TOKEN, f"is taken: @{answer.get('user')} in {answer.get('team')}")
    team = str(answer.get("team_id", ""))
    yield _team(team, way.team)
    headers = cast("Mapping[str, str]", answer.headers)
    yield _scopes(_header(headers, "x-oauth-scopes"))
    yield _clock(_header(headers, "date"), moment)
    yield await _way_in(client, way)
    for channel, purpose in way.channels.items():
        if _CHANNEL.fullmatch(channel):
            yield await _channel(client, channel, purpose)
        else:
            yield error(f"channel {channel}", f"{purpose}: that is no id: {_ITS_ID}")
    if way.people is not None and team == way.team:
        async for finding in census(client, way.team, way.people):
            yield finding


def _team(told: str, ours: str) -> CheckResult:
    if told == ours:
        return ok("the workspace", f"is {told}")
    return error(
        "the workspace",
        f"the token is for {told} and KEYTURN_SLACK_TEAM says {ours}: set it right",
    )


def _scopes(told: str) -> CheckResult:
    has = {scope.strip() for scope in told.split(",") if scope.strip()}
    asked = manifest.scopes()
    wanted, optional = set(asked["bot"]), set(asked["bot_optional"])
    needed = wanted - optional
    if not has:
        return warning("scopes", "Slack did not tell which there are")
    if missing := sorted(needed - has):
        return error(
            "scopes",
            f"{_listed(missing)} missing: add them under {_CHECKUP_WHERE}, and install it again",
        )
    if more := sorted(has - wanted):
        return warning("scopes", f"{_listed(more)} are not needed: better taken away")
    if without := sorted(optional - has):
        return ok("scopes", f"are those that are needed, without the optional {_listed(without)}")
    return ok("scopes", "are those that are needed, and the optional ones")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)


def _clock(told: str, ours: float) -> CheckResult:
    try:
        apart = ours - parsedate_to_datetime(told).timestamp()
    except ValueError:
        return warning("the clock", "Slack did not tell the time")
    words = f"is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} Slack's"
    if abs(apart) > _MOST_SECONDS:
        return error("the clock", f"{words}: set it, best by NTP, or Slack's requests are refused")
    if abs(apart) > _SOME_SECONDS:
        return warning("the clock", f"{words}: keep it by NTP")
    return ok("the clock", "agrees with Slack's")


async def _way_in(client: AsyncWebClient, way: Way) -> CheckResult:
    """Look at how Slack's requests reach us."""
    if not way.app_token:
        address = f"{way.base_url}/slack/events"
        if not way.base_url.startswith("https://"):
            return error(
                "the way in",
                "without an app token Slack must reach us over HTTPS: set KEYTURN_BASE_URL, or "
                "use Socket Mode, for which nothing is open to the outside",
            )
        return ok("the way in", f"is HTTP: the Slack app's addresses must be {address}")
    try:
        await client.apps_connections_open(app_token=way.app_token)
    except _TROUBLES as trouble:
        return error(_APP_TOKEN, _no(trouble, _MAKE_ONE))
    also = "; HTTP is open as well" if way.signing_secret else ""
    return ok(_APP_TOKEN, f"opens Socket Mode{also}")


async def _channel(client: AsyncWebClient, channel: str, purpose: str) -> CheckResult:
    about = f"channel {channel}"
    try:
        answer = await client.conversations_info(channel=channel)
    except SlackApiError as refused:
        why = _PLACES.get(error_of(refused))
        if why is None:
            return error(about, f"{purpose}: {_no(refused, f'look at {_CHECKUP_WHERE}')}")
        return error(about, f"{purpose}: {why}: type /invite @Keyturn there, or set another")
    except _TROUBLES as trouble:
        return error(about, f"{purpose}: {_no(trouble, 'try again')}")
    found = cast("Mapping[str, Any]", answer.get("channel") or {})
    name = f"#{found.get('name')}"
    if found.get("is_archived"):
        return error(about, f"{purpose}: {name} is archived: set another")
    if not found.get("is_member"):
        return error(about, f"{purpose}: the bot is not in {name}: type /invite @Keyturn there")
    return ok(about, f"{purpose}: the bot is in {name}")


def _no(trouble: Exception, remedy: str) -> str:
    """Say why Slack said no, or why it said nothing."""
    if not isinstance(trouble, SlackApiError):
        return f"{explain_failure(trouble)}: try again"
    if (seconds := retry_after(trouble)) is not None:
        return f"Slack is asked too often: ask the doctor again in {seconds:.0f} s"
    if is_away(trouble):
        return f"Slack has a trouble of its own ({error_of(trouble)}): ask the doctor again later"
    needed = str(cast("object", trouble.response.get("needed") or ""))
    lacks = f" (it lacks {needed})" if needed else ""
    return f"Slack says {error_of(trouble)}{lacks}: {remedy}"


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((headers[each] for each in headers if each.lower() == name), "")
