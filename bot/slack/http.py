"""The guard in front of Bolt: what is not surely Slack's, or was here before, goes no further.

Bolt 1.30 answers rubbish headers with 500, runs a replayed request again and logs refused bodies.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bot.db.database import StoreUnavailable
from bot.slack.dedup import NOT_TAKEN, Deliveries
from bot.slack.request_body import Body, Malformed, check_shape, parse

log = logging.getLogger(__name__)

MOST_BYTES = 256 * 1024
_MOST_SECONDS = 10
# https://docs.slack.dev/authentication/verifying-requests-from-slack/
_SKEW_SECONDS = 300
_TIMESTAMP = re.compile(r"\d{10}", re.ASCII)
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}", re.ASCII)


class Refused(Exception):
    """The request goes no further. status: HTTP. Nothing of its body is repeated."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """Lets through what Slack signed, once. take: answers the body, which was read here."""

    def __init__(
        self,
        take: Callable[[Body], Awaitable[Response]],
        *,
        secret: str,
        deliveries: Deliveries,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._take, self._deliveries, self._clock = take, deliveries, clock
        self._key = secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        try:
            response = await self._answered(request, await _raw(request))
        except Refused as refused:
            log.info("refused a request to the Slack door: %s", refused)
            response = JSONResponse({"error": str(refused)}, refused.status)
        await response(scope, receive, send)

    async def _answered(self, request: Request, raw: bytes) -> Response:
        if _is_ssl_check(raw):
            return Response()
        signature = self._check_signature(request, raw)
        body = _parsed(request, raw)
        try:
            first = await self._deliveries.first_time(body, key=signature)
        except StoreUnavailable as trouble:
            log.critical("the Slack door takes nothing: %s", trouble)
            return _not_taken(body)
        return await self._taken(body) if first else Response()

    def _check_signature(self, request: Request, raw: bytes) -> str:
        timestamp = _only_header(request, "x-slack-request-timestamp", _TIMESTAMP)
        given = _only_header(request, "x-slack-signature", _SIGNATURE)
        if abs(self._clock() - int(timestamp)) > _SKEW_SECONDS:
            raise Refused(401, "the request is too old or too early")
        mac = hmac.new(self._key, b"v0:" + timestamp.encode() + b":" + raw, hashlib.sha256)
        if not hmac.compare_digest(f"v0={mac.hexdigest()}".encode(), given.encode()):
            raise Refused(401, "the signature does not fit")
        return given

    async def _taken(self, body: Body) -> Response:
        try:
            return await self._take(body)
        except Exception:
            # Bolt reads the shape of a payload before its own error handling begins.
            log.exception("a signed request could not be read")
            return JSONResponse({"error": "not understood"}, 400)


def _only_header(request: Request, name: str, grammar: re.Pattern[str]) -> str:
    values = request.headers.getlist(name)
    if len(values) != 1 or not grammar.fullmatch(values[0]):
        raise Refused(401, f"{name} is missing or not as Slack writes it")
    return values[0]


async def _raw(request: Request) -> bytes:
    if request.method != "POST":
        raise Refused(405, "Slack posts")
    raw = bytearray()
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > MOST_BYTES:
                    raise Refused(413, "the body is too large")
    except TimeoutError:
        raise Refused(408, "the body takes too long") from None
    except ClientDisconnect:
        raise Refused(400, "the body ended too soon") from None
    return bytes(raw)


def _parsed(request: Request, raw: bytes) -> Body:
    try:
        return check_shape(parse(raw.decode(), request.headers.get("content-type")))
    except (UnicodeDecodeError, Malformed) as wrong:
        log.info("a signed request is not as Slack writes them: %s", wrong)
        raise Refused(400, "the body is malformed") from None


def _is_ssl_check(raw: bytes) -> bool:
    """Slack probes the certificate with an unsigned form; it gets an answer and no effect."""
    if not raw.startswith(b"ssl_check=1") and b"&ssl_check=1" not in raw:
        return False
    try:
        body = parse(raw.decode(), None)
    except (UnicodeDecodeError, Malformed):
        return False
    return body.keys() <= {"ssl_check", "token"} and body.get("ssl_check") == "1"


def _not_taken(body: Body) -> Response:
    if "command" not in body:
        return Response(status_code=503)
    answer = {"response_type": "ephemeral", "text": NOT_TAKEN}
    return Response(json.dumps(answer), media_type="application/json")
