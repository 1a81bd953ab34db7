"""Envelopes: what Slack puts into a Socket Mode connection, and the answer each one gets.

Bolt 1.30's own adapter acknowledges nothing that it could not answer with 200.
Source: https://docs.slack.dev/apis/events-api/using-socket-mode
"""

import json
import logging
from typing import Any, cast

from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app
from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest

from bot.db.database import StoreUnavailable
from bot.slack.dedup import NOT_TAKEN, Deliveries
from bot.slack.request_body import Body, Malformed, check_shape

log = logging.getLogger(__name__)

# Outgoing JSON, never read by us.
Ack = dict[str, Any]


class Envelopes:
    """Hands each envelope to Bolt, once."""

    def __init__(self, bolt: AsyncApp, deliveries: Deliveries) -> None:
        self._bolt, self._deliveries = bolt, deliveries

    async def acknowledgement(self, envelope: Body) -> Ack | None:
        """Return what Slack is told of an envelope; None if it shall come again."""
        name, payload = envelope.get("envelope_id"), envelope.get("payload")
        if not isinstance(name, str):
            log.info("something came that is no envelope")
            return None
        if not isinstance(payload, dict):
            log.info("an envelope came without anything to read in it")
            return {"envelope_id": name}
        body = cast("Body", payload)
        try:
            check_shape(body)
        except Malformed as wrong:
            log.info("an envelope is not as Slack writes them: %s", wrong)
            return {"envelope_id": name}
        try:
            first = await self._deliveries.first_time(body, key=f"envelope {name}")
        except StoreUnavailable as trouble:
            log.critical("the Slack door takes nothing: %s", trouble)
            return _not_taken(envelope, name)
        said = await self._said(envelope) if first else None
        return {"envelope_id": name} | ({"payload": said} if said else {})

    async def _said(self, envelope: Body) -> Body | None:
        """Let Bolt answer; whatever becomes of it, the envelope was taken."""
        try:
            request = SocketModeRequest.from_dict(envelope)
            if request is None:
                return None
            response = await run_async_bolt_app(self._bolt, request)
        except Exception:
            # Bolt reads the shape of a payload before its own error handling begins.
            log.exception("an envelope could not be read")
            return None
        if response.status != 200:
            log.error("an envelope was answered with status %d", response.status)
            return None
        return _words_of(response) if request.accepts_response_payload else None


def _words_of(response: BoltResponse) -> Body | None:
    if not response.body:
        return None
    kind = "".join(response.headers.get("content-type", [])[:1])
    return json.loads(response.body) if "json" in kind else {"text": response.body}


def _not_taken(envelope: Body, name: str) -> Ack | None:
    if envelope.get("type") != "slash_commands":
        return None
    return {
        "envelope_id": name,
        "payload": {"response_type": "ephemeral", "text": NOT_TAKEN},
    }
