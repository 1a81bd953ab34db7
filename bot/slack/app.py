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
from bot.policy import Organisation, Person, PolicySource
from bot.service import Workflow
from bot.slack.actions import DecisionHandler, SlackListeners
from bot.slack.client import ConnectionRetryHandler, MessageSender
from bot.slack.commands import SlackCommands
from bot.slack.dedup import DeliveryRegister
from bot.slack.envelopes import EnvelopeHandler
from bot.slack.home import HomeTabs
from bot.slack.http import SignatureGuard
from bot.slack.identity import IdentityService
from bot.slack.modals import RequestForms
from bot.slack.outbox import Outbox
from bot.slack.payloads import Account
from bot.slack.request_body import Body
from bot.slack.run_facts import SlackRunViewBuilder
from bot.slack.socket_mode import SocketModeService
from bot.workflow.bans import describe_ban
from bot.workflow.form_options import FormOptions

_TIMEOUT_SECONDS = 10


class SlackClient(AsyncWebClient):
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
                raise self._build_unreadable_error(
                    api_method, answer.status, answer.headers
                ) from None
            if isinstance(answer.data, dict):
                raise
            raise self._build_unreadable_error(
                api_method, answer.status_code, answer.headers
            ) from None
        except (AttributeError, UnicodeDecodeError):
            raise self._build_unreadable_error(api_method, 200, {}) from None

    def _build_unreadable_error(
        self, method: str, status: int, headers: Mapping[str, str]
    ) -> SlackApiError:
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


def create_client(token: str, api_url: str) -> SlackClient:
    """Return what speaks to the Web API at *api* with the bot's token."""
    speaker = SlackClient(
        token, api_url, timeout=_TIMEOUT_SECONDS, retry_handlers=[ConnectionRetryHandler()]
    )
    # slack_sdk heeds HTTPS_PROXY for plain HTTP too, and never NO_PROXY.
    parts = urlsplit(api_url)
    if parts.scheme == "http" or proxy_bypass(parts.hostname or ""):
        speaker.proxy = None
    return speaker


@dataclass(frozen=True)
class SlackSettings:
    """How Keyturn is installed in Slack.

    signing_secret: proves that a request over HTTP is Slack's, "" to take none.
    app_token: xapp-…, opens Socket Mode, "" without.
    team: T…, our workspace. base_url: of the web pages, "" without. default_channel: C…, for
    requests that were made in none, "" without. alarm_channel: C…, for broken glass, "" for the
    default one.
    """

    signing_secret: str = field(repr=False)
    workspace: str
    base_url: str = ""
    default_channel: str = ""
    alert_channel: str = ""
    app_token: str = field(default="", repr=False)


class SlackService:
    """app: the ASGI app, shut without a signing secret. sockets: to be run beside it, None without
    an app token. outbox: to be run beside it, and woken after every commit with news.

    client: speaks to Slack, or to something shaped like it, with the bot's token.
    """

    def __init__(
        self,
        workflow: Workflow,
        database: Database,
        policies: PolicySource,
        client: AsyncWebClient,
        settings: SlackSettings,
        offering: FormOptions,
    ) -> None:
        if not (settings.signing_secret or settings.app_token):
            raise ValueError("without a signing secret anybody could speak as Slack")
        stories = SlackRunViewBuilder(
            policies, team=settings.workspace, base_url=settings.base_url
        )
        voice = MessageSender(client)
        self.home_tabs = HomeTabs(database, stories, voice)
        self.outbox = Outbox(
            database,
            stories,
            voice,
            default_channel=settings.default_channel,
            alarm_channel=settings.alert_channel,
            home_tabs=self.home_tabs,
        )
        self._listeners = SlackListeners(
            IdentityService(
                policies,
                client,
                team=settings.workspace,
                on_unknown_account=partial(_log_unknown_account, database),
                get_ban_notice=partial(_get_ban_notice, policies, database),
            ),
            SlackCommands(workflow, database, policies, stories),
            DecisionHandler(workflow, database),
            RequestForms(workflow, database, policies, offering, client),
            self.home_tabs,
            voice,
        )
        bolt = _create_bolt_app(client, settings.signing_secret)
        self._listeners.register_listeners(bolt)
        deliveries = DeliveryRegister(database)
        self.app: ASGIApp = _refuse_http
        if settings.signing_secret:
            take = _create_request_handler(self._listeners, bolt)
            self.app = SignatureGuard(take, secret=settings.signing_secret, deliveries=deliveries)
        self.socket_mode: SocketModeService | None = None
        if settings.app_token:
            envelopes = EnvelopeHandler(bolt, deliveries)
            self.socket_mode = SocketModeService(client, settings.app_token, envelopes)

    async def close_listeners(self) -> None:
        await self._listeners.wait_for_background_tasks()


# What a stranger is called is up to whoever signs; Slack's ids are shorter.
_MAX_ID_LENGTH = 64


def _log_unknown_account(database: Database, account: Account, why: str) -> None:
    refusals.log_refusal_in_own_transaction(
        database,
        refusals.UNKNOWN_USER,
        user=account.user[:_MAX_ID_LENGTH],
        team=account.team[:_MAX_ID_LENGTH],
        reason=why,
        source="slack",
    )


def _get_ban_notice(policies: PolicySource, database: Database, account: Account) -> str:
    def find(household: Organisation) -> Person | None:
        return household.find_by_slack(
            team=account.team, enterprise=account.enterprise or None, user=account.user
        )

    return describe_ban(policies, database, find)


def _create_bolt_app(client: AsyncWebClient, signing_secret: str) -> AsyncApp:
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


def _create_request_handler(
    listeners: SlackListeners, bolt: AsyncApp
) -> Callable[[Body], Awaitable[Response]]:
    async def answer(body: Body) -> Response:
        said = await listeners.answer_command(body)
        if said is None:
            # As over Socket Mode: the guard has checked the signature, and read the body.
            said = await bolt.async_dispatch(AsyncBoltRequest(body=body, mode="socket_mode"))
        return to_starlette_response(said)

    return answer


async def _refuse_http(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer whoever posts here that nothing is taken over HTTP."""
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    words = "Keyturn takes what Slack sends over Socket Mode only: KEYTURN_SLACK_SIGNING_SECRET"
    await PlainTextResponse(f"{words} opens this door.\n", 404)(scope, receive, send)
