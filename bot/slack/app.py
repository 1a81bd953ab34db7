"""The Slack door, put together: how requests come in, over HTTP or Socket Mode, and its outbox."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from aiohttp import ClientResponse
from slack_bolt.adapter.starlette.async_handler import to_starlette_response
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.audit import refusals
from bot.db.database import Database
from bot.policy import Household, Person
from bot.service import Workflow
from bot.slack.actions import Decisions, Listeners
from bot.slack.client import Retry, Voice
from bot.slack.commands import Commands
from bot.slack.dedup import Deliveries
from bot.slack.envelopes import Envelopes
from bot.slack.home import Homes
from bot.slack.http import Guard
from bot.slack.identity import Identity
from bot.slack.modals import Asking
from bot.slack.outbox import Outbox
from bot.slack.payloads import Account
from bot.slack.request_body import Body
from bot.slack.run_facts import Stories
from bot.slack.socket_mode import SocketMode
from bot.workflow.bans import ban_notice
from bot.workflow.context import Policies
from bot.workflow.form_options import FormOptions

_PATIENCE_SECONDS = 10


class Client(AsyncWebClient):
    """Raises SlackApiError, with a response that can be read, for every answer that is no JSON
    object: what stands in front of Slack answers with a text, a page or a part of one.

    slack_sdk 3.47 raises AttributeError for some of them, and leaves texts in the response.
    """

    async def api_call(self, api_method: str, **told: Any) -> AsyncSlackResponse:
        try:
            return await super().api_call(api_method, **told)
        except SlackApiError as refused:
            answer: Any = refused.response
            if isinstance(answer, ClientResponse):
                raise self._unreadable(api_method, answer.status, answer.headers) from None
            if isinstance(answer.data, dict):
                raise
            raise self._unreadable(api_method, answer.status_code, answer.headers) from None
        except (AttributeError, UnicodeDecodeError):
            raise self._unreadable(api_method, 200, {}) from None

    def _unreadable(self, method: str, status: int, headers: Mapping[str, str]) -> SlackApiError:
        response = AsyncSlackResponse(
            client=self,
            http_verb="POST",
            api_url=f"{self.base_url}{method}",
            req_args={},
            data={},
            headers=dict(headers),
            status_code=status,
        )
        return SlackApiError(f"{method} was answered with what is no JSON object", response)


def client(token: str, api: str) -> Client:
    """Return what speaks to the Web API at *api* with the bot's token."""
    speaker = Client(token, api, timeout=_PATIENCE_SECONDS, retry_handlers=[Retry()])
    # slack_sdk heeds HTTPS_PROXY for plain HTTP too, and never NO_PROXY.
    parts = urlsplit(api)
    if parts.scheme == "http" or proxy_bypass(parts.hostname or ""):
        speaker.proxy = None
    return speaker


@dataclass(frozen=True)
class Installation:
    """How Keyturn is installed in Slack.

    signing_secret: proves that a request over HTTP is Slack's, "" to take none.
    app_token: xapp-…, opens Socket Mode, "" without.
    team: T…, our workspace. base_url: of the web pages, "" without. default_channel: C…, for
    requests that were made in none, "" without. alarm_channel: C…, for broken glass, "" for the
    default one.
    """

    signing_secret: str = field(repr=False)
    team: str
    base_url: str = ""
    default_channel: str = ""
    alarm_channel: str = ""
    app_token: str = field(default="", repr=False)


class Door:
    """app: the ASGI app, shut without a signing secret. sockets: to be run beside it, None without
    an app token. outbox: to be run beside it, and woken after every commit with news.

    client: speaks to Slack, or to something shaped like it, with the bot's token.
    """

    def __init__(
        self,
        workflow: Workflow,
        database: Database,
        policies: Policies,
        client: AsyncWebClient,
        slack: Installation,
        offering: FormOptions,
    ) -> None:
        if not (slack.signing_secret or slack.app_token):
            raise ValueError("without a signing secret anybody could speak as Slack")
        stories = Stories(policies, team=slack.team, base_url=slack.base_url)
        voice = Voice(client)
        self.homes = Homes(database, stories, voice)
        self.outbox = Outbox(
            database,
            stories,
            voice,
            default_channel=slack.default_channel,
            alarm_channel=slack.alarm_channel,
            homes=self.homes,
        )
        self._listeners = Listeners(
            Identity(
                policies,
                client,
                team=slack.team,
                on_stranger=partial(_turned_away, database),
                ban_notice=partial(_ban_notice, policies, database),
            ),
            Commands(workflow, database, policies, stories),
            Decisions(workflow, database),
            Asking(workflow, database, policies, offering, client),
            self.homes,
            voice,
        )
        bolt = _bolt(client, slack.signing_secret)
        self._listeners.listen(bolt)
        deliveries = Deliveries(database)
        self.app: ASGIApp = _shut
        if slack.signing_secret:
            take = _answering(self._listeners, bolt)
            self.app = Guard(take, secret=slack.signing_secret, deliveries=deliveries)
        self.sockets: SocketMode | None = None
        if slack.app_token:
            envelopes = Envelopes(bolt, deliveries)
            self.sockets = SocketMode(client, slack.app_token, envelopes)

    async def close(self) -> None:
        await self._listeners.close()


# What a stranger is called is up to whoever signs; Slack's ids are shorter.
_LONGEST_ID = 64


def _turned_away(database: Database, account: Account, why: str) -> None:
    refusals.log_refusal_apart(
        database,
        refusals.STRANGER,
        user=account.user[:_LONGEST_ID],
        team=account.team[:_LONGEST_ID],
        why=why,
        door="slack",
    )


def _ban_notice(policies: Policies, database: Database, account: Account) -> str:
    def find(household: Household) -> Person | None:
        return household.by_slack(
            team=account.team, enterprise=account.enterprise or None, user=account.user
        )

    return ban_notice(policies, database, find)


def _bolt(client: AsyncWebClient, signing_secret: str) -> AsyncApp:
    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        # Who may act is bot.slack.identity's to say. Bolt would ask Slack at the first request.
        return AuthorizeResult(
            enterprise_id=enterprise_id, team_id=team_id, bot_token=client.token
        )

    return AsyncApp(
        name="keyturn",
        signing_secret=signing_secret,
        # Listeners speak by bot.slack.client; this one only has to be there.
        client=AsyncWebClient(base_url=client.base_url),
        authorize=authorize,
        process_before_response=True,
        raise_error_for_unhandled_request=True,
    )


def _answering(listeners: Listeners, bolt: AsyncApp) -> Callable[[Body], Awaitable[Response]]:
    async def answer(body: Body) -> Response:
        said = await listeners.answered(body)
        if said is None:
            # As over Socket Mode: the guard has checked the signature, and read the body.
            said = await bolt.async_dispatch(AsyncBoltRequest(body=body, mode="socket_mode"))
        return to_starlette_response(said)

    return answer


async def _shut(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer whoever posts here that nothing is taken over HTTP."""
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    words = "Keyturn takes what Slack sends over Socket Mode only: KEYTURN_SLACK_SIGNING_SECRET"
    await PlainTextResponse(f"{words} opens this door.\n", 404)(scope, receive, send)
