"""Verify signatures of HTTP requests and drop repeated ones, in front of Bolt.

Bolt 1.30 answers malformed headers with 500, runs a replayed request again and logs refused
bodies.
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
from bot.slack.dedup import STORE_UNAVAILABLE_MESSAGE, DeliveryRegister
from bot.slack.payloads import Body, MalformedBodyError, check_shape, parse_body

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 256 * 1024
_BODY_TIMEOUT_SECONDS = 10
# https://docs.slack.dev/authentication/verifying-requests-from-slack/
_MAX_AGE_SECONDS = 300
_TIMESTAMP_PATTERN = re.compile(r"\d{10}", re.ASCII)
_SIGNATURE_PATTERN = re.compile(r"v0=[0-9a-f]{64}", re.ASCII)


class RequestRefused(Exception):
    """The request is not from Slack or malformed. status: HTTP. Quotes nothing of its body."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class SignatureGuard:
    """Passes on each request that Slack signed, once. handle_body: answers its parsed body."""

    def __init__(
        self,
        handle_body: Callable[[Body], Awaitable[Response]],
        *,
        secret: str,
        deliveries: DeliveryRegister,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._handle_body, self._deliveries, self._clock = handle_body, deliveries, clock
        self._key = secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        try:
            response = await self._answer_request(request, await _read_body(request))
        except RequestRefused as refused:
            log.info("refused an HTTP request to /slack/events: %s", refused)
            response = JSONResponse({"error": str(refused)}, refused.status)
        await response(scope, receive, send)

    async def _answer_request(self, request: Request, body_bytes: bytes) -> Response:
        if _is_ssl_check(body_bytes):
            return Response()
        signature = self._check_signature(request, body_bytes)
        body = _parse_request_body(request, body_bytes)
        try:
            first = await self._deliveries.is_first_delivery(body, key=signature)
        except StoreUnavailable as error:
            log.critical("cannot accept requests from Slack: %s", error)
            return _build_unavailable_response(body)
        return await self._dispatch_body(body) if first else Response()

    def _check_signature(self, request: Request, body_bytes: bytes) -> str:
        timestamp = _get_single_header(request, "x-slack-request-timestamp", _TIMESTAMP_PATTERN)
        given = _get_single_header(request, "x-slack-signature", _SIGNATURE_PATTERN)
        if abs(self._clock() - int(timestamp)) > _MAX_AGE_SECONDS:
            raise RequestRefused(401, "the timestamp is more than 5 minutes off")
        mac = hmac.new(self._key, b"v0:" + timestamp.encode() + b":" + body_bytes, hashlib.sha256)
        if not hmac.compare_digest(f"v0={mac.hexdigest()}".encode(), given.encode()):
            raise RequestRefused(401, "the signature does not match")
        return given

    async def _dispatch_body(self, body: Body) -> Response:
        try:
            return await self._handle_body(body)
        except Exception:
            # Bolt parses a payload before its own error handling begins.
            log.exception("cannot handle a signed request from Slack")
            return JSONResponse({"error": "cannot parse the request"}, 400)


def _get_single_header(request: Request, name: str, pattern: re.Pattern[str]) -> str:
    values = request.headers.getlist(name)
    if len(values) != 1 or not pattern.fullmatch(values[0]):
        raise RequestRefused(401, f"{name} is missing or malformed")
    return values[0]


async def _read_body(request: Request) -> bytes:
    if request.method != "POST":
        raise RequestRefused(405, "use POST")
    raw = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_SECONDS):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > MAX_BODY_BYTES:
                    raise RequestRefused(413, "the body is too large")
    except TimeoutError:
        raise RequestRefused(408, "the body takes too long") from None
    except ClientDisconnect:
        raise RequestRefused(400, "the body ended too soon") from None
    return bytes(raw)


def _parse_request_body(request: Request, body_bytes: bytes) -> Body:
    try:
        return check_shape(parse_body(body_bytes.decode(), request.headers.get("content-type")))
    except (UnicodeDecodeError, MalformedBodyError) as error:
        log.info("refused a malformed request from Slack: %s", error)
        raise RequestRefused(400, "the body is malformed") from None


def _is_ssl_check(body_bytes: bytes) -> bool:
    """Return whether Slack checks the certificate, which it does by an unsigned form."""
    if not body_bytes.startswith(b"ssl_check=1") and b"&ssl_check=1" not in body_bytes:
        return False
    try:
        body = parse_body(body_bytes.decode(), None)
    except (UnicodeDecodeError, MalformedBodyError):
        return False
    return body.keys() <= {"ssl_check", "token"} and body.get("ssl_check") == "1"


def _build_unavailable_response(body: Body) -> Response:
    if "command" not in body:
        return Response(status_code=503)
    answer = {"response_type": "ephemeral", "text": STORE_UNAVAILABLE_MESSAGE}
    return Response(json.dumps(answer), media_type="application/json")
