"""Envelopes: what Slack sends over Socket Mode, and how each is acknowledged.

Bolt 1.30's own adapter does not acknowledge envelopes that it did not answer with 200.
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
    """Passes each envelope to Bolt, once."""

    def __init__(self, bolt: AsyncApp, deliveries: DeliveryRegister) -> None:
        self._bolt, self._deliveries = bolt, deliveries

    async def acknowledge_envelope(self, request: SocketModeRequest) -> SocketModeResponse | None:
        """Return the acknowledgement of an envelope; None to have Slack deliver it again."""
        name = request.envelope_id
        try:
            body = check_shape(parse_body(json.dumps(request.payload), "application/json"))
        except (MalformedBodyError, RecursionError) as error:
            log.info("ignored a malformed envelope: %s", error)
            return SocketModeResponse(name)
        try:
            first = await self._deliveries.is_first_delivery(body, key=f"envelope {name}")
        except StoreUnavailable as error:
            log.critical("cannot accept requests from Slack: %s", error)
            return _build_unavailable_response(request)
        return SocketModeResponse(name, await self._dispatch_to_bolt(request) if first else None)

    async def _dispatch_to_bolt(self, request: SocketModeRequest) -> Body | None:
        """Return Bolt's answer; None if it failed: the envelope is acknowledged all the same."""
        try:
            response = await run_async_bolt_app(self._bolt, request)
        except Exception:
            # Bolt parses a payload before its own error handling begins.
            log.exception("cannot handle an envelope from Slack")
            return None
        if response.status != 200:
            log.error("Bolt answered an envelope with status %d", response.status)
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
    message = {"response_type": "ephemeral", "text": STORE_UNAVAILABLE_MESSAGE}
    return SocketModeResponse(request.envelope_id, message)
