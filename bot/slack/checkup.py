"""A check-up of the way to Slack: tokens, scopes, workspace, clock and channels. Changes nothing.

Scopes are told in the header X-OAuth-Scopes, Slack's time in Date, of every answer.
Source: https://docs.slack.dev/reference/methods/auth.test
"""

import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.finding import Finding, mend, note, ok
from bot.slack import manifest, unreached
from bot.slack.census import People, census
from bot.slack.voice import error_of, is_away, retry_after

# Slack's requests are refused when they seem five minutes old; a part of that is lost on the way.
_MOST_SECONDS, _SOME_SECONDS = 240, 30
_BOT_TOKEN, _APP_TOKEN = "the bot's token", "the app's token"
# ValueError: an address of a proxy that is none.
_TROUBLES = (SlackClientError, ClientError, OSError, ValueError)
_WHERE = "OAuth & Permissions of the Slack app"
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
) -> AsyncGenerator[Finding]:
    """Yield each finding as it is known."""
    began = clock()
    try:
        answer = await client.auth_test()
    except SlackApiError as refused:
        yield mend(_BOT_TOKEN, _no(refused, f"take the right one from {_WHERE}"))
        return
    except _TROUBLES as trouble:
        why = unreached.why(trouble, proxy=client.proxy or "", authorities=way.authorities)
        yield mend("the way to Slack", why)
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
            yield mend(f"channel {channel}", f"{purpose}: that is no id: {_ITS_ID}")
    if way.people is not None and team == way.team:
        async for finding in census(client, way.team, way.people):
            yield finding


def _team(told: str, ours: str) -> Finding:
    if told == ours:
        return ok("the workspace", f"is {told}")
    return mend(
        "the workspace",
        f"the token is for {told} and KEYTURN_SLACK_TEAM says {ours}: set it right",
    )


def _scopes(told: str) -> Finding:
    has = {scope.strip() for scope in told.split(",") if scope.strip()}
    asked = manifest.scopes()
    wanted, optional = set(asked["bot"]), set(asked["bot_optional"])
    needed = wanted - optional
    if not has:
        return note("scopes", "Slack did not tell which there are")
    if missing := sorted(needed - has):
        return mend(
            "scopes",
            f"{_listed(missing)} missing: add them under {_WHERE}, and install it again",
        )
    if more := sorted(has - wanted):
        return note("scopes", f"{_listed(more)} are not needed: better taken away")
    if without := sorted(optional - has):
        return ok("scopes", f"are those that are needed, without the optional {_listed(without)}")
    return ok("scopes", "are those that are needed, and the optional ones")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)


def _clock(told: str, ours: float) -> Finding:
    try:
        apart = ours - parsedate_to_datetime(told).timestamp()
    except ValueError:
        return note("the clock", "Slack did not tell the time")
    words = f"is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} Slack's"
    if abs(apart) > _MOST_SECONDS:
        return mend("the clock", f"{words}: set it, best by NTP, or Slack's requests are refused")
    if abs(apart) > _SOME_SECONDS:
        return note("the clock", f"{words}: keep it by NTP")
    return ok("the clock", "agrees with Slack's")


async def _way_in(client: AsyncWebClient, way: Way) -> Finding:
    """Look at how Slack's requests reach us."""
    if not way.app_token:
        address = f"{way.base_url}/slack/events"
        if not way.base_url.startswith("https://"):
            return mend(
                "the way in",
                "without an app token Slack must reach us over HTTPS: set KEYTURN_BASE_URL, or "
                "use Socket Mode, for which nothing is open to the outside",
            )
        return ok("the way in", f"is HTTP: the Slack app's addresses must be {address}")
    try:
        await client.apps_connections_open(app_token=way.app_token)
    except _TROUBLES as trouble:
        return mend(_APP_TOKEN, _no(trouble, _MAKE_ONE))
    also = "; HTTP is open as well" if way.signing_secret else ""
    return ok(_APP_TOKEN, f"opens Socket Mode{also}")


async def _channel(client: AsyncWebClient, channel: str, purpose: str) -> Finding:
    about = f"channel {channel}"
    try:
        answer = await client.conversations_info(channel=channel)
    except SlackApiError as refused:
        why = _PLACES.get(error_of(refused))
        if why is None:
            return mend(about, f"{purpose}: {_no(refused, f'look at {_WHERE}')}")
        return mend(about, f"{purpose}: {why}: type /invite @Keyturn there, or set another")
    except _TROUBLES as trouble:
        return mend(about, f"{purpose}: {_no(trouble, 'try again')}")
    found = cast("Mapping[str, Any]", answer.get("channel") or {})
    name = f"#{found.get('name')}"
    if found.get("is_archived"):
        return mend(about, f"{purpose}: {name} is archived: set another")
    if not found.get("is_member"):
        return mend(about, f"{purpose}: the bot is not in {name}: type /invite @Keyturn there")
    return ok(about, f"{purpose}: the bot is in {name}")


def _no(trouble: Exception, remedy: str) -> str:
    """Say why Slack said no, or why it said nothing."""
    if not isinstance(trouble, SlackApiError):
        return f"{unreached.why(trouble)}: try again"
    if (seconds := retry_after(trouble)) is not None:
        return f"Slack is asked too often: ask the doctor again in {seconds:.0f} s"
    if is_away(trouble):
        return f"Slack has a trouble of its own ({error_of(trouble)}): ask the doctor again later"
    needed = str(cast("object", trouble.response.get("needed") or ""))
    lacks = f" (it lacks {needed})" if needed else ""
    return f"Slack says {error_of(trouble)}{lacks}: {remedy}"


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((headers[each] for each in headers if each.lower() == name), "")
