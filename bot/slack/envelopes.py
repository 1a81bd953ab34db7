"""Envelopes: what Slack puts into a Socket Mode connection, and the answer each one gets.

Bolt 1.30's own adapter acknowledges nothing that it could not answer with 200.
Source: https://docs.slack.dev/apis/events-api/using-socket-mode
"""

import json
import logging

from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from bot.db.database import StoreUnavailable
from bot.slack.dedup import STORE_UNAVAILABLE_MESSAGE, DeliveryRegister
from bot.slack.request_body import Body, MalformedBodyError, check_shape, parse_body

log = logging.getLogger(__name__)


class EnvelopeHandler:
    """Hands each envelope to Bolt, once."""

    def __init__(self, bolt: AsyncApp, deliveries: DeliveryRegister) -> None:
        self._bolt, self._deliveries = bolt, deliveries

    async def acknowledge_envelope(self, request: SocketModeRequest) -> SocketModeResponse | None:
        """Return what Slack is told of an envelope; None if it shall come again."""
        name = request.envelope_id
        try:
            body = check_shape(parse_body(json.dumps(request.payload), "application/json"))
        except (MalformedBodyError, RecursionError) as wrong:
            log.info("an envelope is not as Slack writes them: %s", wrong)
            return SocketModeResponse(name)
        try:
            first = await self._deliveries.is_first_delivery(body, key=f"envelope {name}")
        except StoreUnavailable as trouble:
            log.critical("the Slack door takes nothing: %s", trouble)
            return _build_unavailable_response(request)
        return SocketModeResponse(name, await self._dispatch_to_bolt(request) if first else None)

    async def _dispatch_to_bolt(self, request: SocketModeRequest) -> Body | None:
        """Let Bolt answer; whatever becomes of it, the envelope was taken."""
        try:
            response = await run_async_bolt_app(self._bolt, request)
        except Exception:
            # Bolt reads the shape of a payload before its own error handling begins.
            log.exception("an envelope could not be read")
            return None
        if response.status != 200:
            log.error("an envelope was answered with status %d", response.status)
            return None
        return _get_response_payload(response) if request.accepts_response_payload else None


def _get_response_payload(response: BoltResponse) -> Body | None:
    if not response.body:
        return None
    kind = "".join(response.headers.get("content-type", [])[:1])
    return json.loads(response.body) if "json" in kind else {"text": response.body}


def _build_unavailable_response(request: SocketModeRequest) -> SocketModeResponse | None:
    if request.type != "slash_commands":
        return None
    words = {"response_type": "ephemeral", "text": STORE_UNAVAILABLE_MESSAGE}
    return SocketModeResponse(request.envelope_id, words)
