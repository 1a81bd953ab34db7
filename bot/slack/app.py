"""Assemble the Slack service: HTTP or Socket Mode, listeners and outbox."""

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

from bot.audit import events, refusals
from bot.db.database import Database
from bot.policy import Organisation, Person, PolicySource
from bot.queries.banned_people import describe_ban
from bot.queries.form_options import FormOptions
from bot.service import KeyturnService
from bot.slack.actions import DecisionHandler, SlackForms, SlackListeners
from bot.slack.client import ConnectionRetryHandler, MessageSender
from bot.slack.command_forms import CommandForms
from bot.slack.commands import SlackCommands
from bot.slack.dedup import DeliveryRegister
from bot.slack.direct_notices import DirectNotices
from bot.slack.features import NO_FEATURES, ChatContext, ChatFeatures
from bot.slack.handover import build_handover_list
from bot.slack.home import HomeTabs
from bot.slack.http import SignatureGuard
from bot.slack.identity import IdentityService
from bot.slack.modals import RequestForms
from bot.slack.outbox import Outbox
from bot.slack.payloads import Account, Body
from bot.slack.run_facts import SlackRunViewBuilder
from bot.slack.run_forms import RunForms
from bot.slack.socket_mode import EnvelopeHandler, SocketModeService
from bot.slack.views import Views

_TIMEOUT_SECONDS = 10


class SlackClient(AsyncWebClient):
    """Raises a readable SlackApiError for every answer that is not a JSON object.

    Proxies in front of Slack answer with text or HTML. slack_sdk 3.47 raises AttributeError for
    some of these, and leaves text in the response of others.
    """

    async def api_call(self, api_method: str, **arguments: Any) -> AsyncSlackResponse:
        try:
            return await super().api_call(api_method, **arguments)
        except SlackApiError as error:
            answer: Any = error.response
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
        return SlackApiError(f"the answer to {method} is not a JSON object", response)


def create_client(token: str, api_url: str) -> SlackClient:
    """Return a client for the Web API at *api_url* with the bot's token."""
    client = SlackClient(
        token, api_url, timeout=_TIMEOUT_SECONDS, retry_handlers=[ConnectionRetryHandler()]
    )
    # slack_sdk uses HTTPS_PROXY for plain HTTP too, and ignores NO_PROXY.
    parts = urlsplit(api_url)
    if parts.scheme == "http" or proxy_bypass(parts.hostname or ""):
        client.proxy = None
    return client


@dataclass(frozen=True)
class SlackSettings:
    """How Keyturn is installed in Slack."""

    signing_secret: str = field(repr=False)
    """Verifies HTTP requests; "" to accept none."""
    workspace: str
    """T…, our workspace."""
    base_url: str = ""
    """Of the web pages; "" without."""
    default_channel: str = ""
    """C…, for requests from outside Slack; "" without."""
    alert_channel: str = ""
    """C…, for break-glass; "" for the default channel."""
    app_token: str = field(default="", repr=False)
    """xapp-…, opens Socket Mode; "" without."""


class SlackService:
    """The parts of the Slack service.

    Attributes:
        app: the ASGI app; answers 404 without a signing secret.
        socket_mode: to be run beside the app; None without an app token.
        outbox: to be run beside the app, and woken after every commit that announces a run.
        home_tabs: updates Home tabs; run by the outbox.
        parts: what features do; to be run beside the app.
        direct_notices: sends handovers and notices of features; to be run beside the app.
    """

    def __init__(
        self,
        service: KeyturnService,
        database: Database,
        policies: PolicySource,
        client: AsyncWebClient,
        settings: SlackSettings,
        form_options: FormOptions,
        features: ChatFeatures = NO_FEATURES,
    ) -> None:
        if not (settings.signing_secret or settings.app_token):
            raise ValueError(
                "without a signing secret or an app token, requests cannot be verified"
            )
        view_builder = SlackRunViewBuilder(
            policies,
            team=settings.workspace,
            base_url=settings.base_url,
            features=features,
        )
        sender, views = MessageSender(client), Views(client)
        self.home_tabs = HomeTabs(database, view_builder, sender, features.read_home_section)
        handovers = (
            [build_handover_list(features.list_started_duties, features.handover_sections)]
            if features.list_started_duties
            else []
        )
        self.direct_notices = DirectNotices(
            database, view_builder, sender, [*features.list_direct_notices, *handovers]
        )
        self.outbox = Outbox(
            database,
            view_builder,
            sender,
            default_channel=settings.default_channel,
            alarm_channel=settings.alert_channel,
            home_tabs=self.home_tabs,
        )
        context = ChatContext(
            service, database, policies, view_builder, sender, settings.default_channel
        )
        self.parts = [build(context) for build in features.build_parts]
        commands = SlackCommands(service, database, policies, view_builder, features)
        self._listeners = SlackListeners(
            IdentityService(
                policies,
                client,
                team=settings.workspace,
                on_unknown_account=partial(_log_unknown_account, database),
                get_ban_notice=partial(_get_ban_notice, policies, database),
            ),
            commands,
            DecisionHandler(service, database),
            SlackForms(
                RequestForms(
                    service, database, policies, form_options, views, commands.requestable
                ),
                RunForms(service, database, view_builder, views),
                CommandForms(commands, database, policies, views),
            ),
            self.home_tabs,
            sender,
            self.parts,
        )
        bolt = _create_bolt_app(client, settings.signing_secret)
        self._listeners.register_listeners(bolt)
        deliveries = DeliveryRegister(database)
        self.app: ASGIApp = _refuse_http
        if settings.signing_secret:
            handle_body = _create_request_handler(self._listeners, bolt)
            self.app = SignatureGuard(
                handle_body, secret=settings.signing_secret, deliveries=deliveries
            )
        self.socket_mode: SocketModeService | None = None
        if settings.app_token:
            envelopes = EnvelopeHandler(bolt, deliveries)
            self.socket_mode = SocketModeService(client, settings.app_token, envelopes)

    async def close_listeners(self) -> None:
        """Wait until the background tasks of the listeners have ended."""
        await self._listeners.wait_for_background_tasks()


# Ids of unknown accounts come from outside; Slack's own are shorter.
_MAX_ID_LENGTH = 64


def _log_unknown_account(database: Database, account: Account, why: str) -> None:
    refusals.log_refusal_in_own_transaction(
        database,
        events.UnknownUserRefused(
            user=account.user[:_MAX_ID_LENGTH],
            team=account.team[:_MAX_ID_LENGTH],
            reason=why,
            source="slack",
        ),
    )


def _get_ban_notice(policies: PolicySource, database: Database, account: Account) -> str:
    def find_person(organisation: Organisation) -> Person | None:
        return organisation.find_by_slack(
            team=account.team, enterprise=account.enterprise or None, user=account.user
        )

    return describe_ban(policies, database, find_person)


def _create_bolt_app(client: AsyncWebClient, signing_secret: str) -> AsyncApp:
    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        # bot.slack.identity decides who may act. Bolt's default calls Slack at the first request.
        return AuthorizeResult(
            enterprise_id=enterprise_id, team_id=team_id, bot_token=client.token
        )

    return AsyncApp(
        name="keyturn",
        signing_secret=signing_secret,
        # Bolt requires a client; the listeners use bot.slack.client.
        client=AsyncWebClient(base_url=client.base_url),
        authorize=authorize,
        process_before_response=True,
        raise_error_for_unhandled_request=True,
    )


def _create_request_handler(
    listeners: SlackListeners, bolt: AsyncApp
) -> Callable[[Body], Awaitable[Response]]:
    async def answer(body: Body) -> Response:
        response = await listeners.answer_command(body)
        if response is None:
            # In Socket Mode, Bolt skips its signature check: SignatureGuard has done that.
            response = await bolt.async_dispatch(AsyncBoltRequest(body=body, mode="socket_mode"))
        return to_starlette_response(response)

    return answer


async def _refuse_http(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 404: without a signing secret, requests are accepted over Socket Mode only."""
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    text = (
        "Keyturn accepts Slack requests over Socket Mode only. To accept them over HTTP, set "
        "KEYTURN_SLACK_SIGNING_SECRET.\n"
    )
    await PlainTextResponse(text, 404)(scope, receive, send)
