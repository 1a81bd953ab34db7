"""A POST with an Idempotency-Key has one effect, however often it is repeated.

The response is stored for a day by key and token, and returned to the same request, after the
scopes of the token are checked. If the first request was interrupted before its response, a repeat
runs again where it had no effect yet, and otherwise redirects to what it did.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from bot.api.auth import RequiredScope, authenticate
from bot.api.deps import ApiParts
from bot.api.errors import KeyInUseError, KeyReusedError, build_error_response
from bot.audit import change_log
from bot.db import idempotency
from bot.db.database import Database, StoreUnavailable
from bot.db.idempotency import Claim, EarlierRequest, StoredResponse

log = logging.getLogger(__name__)

_KEY_PATTERN = r"^[!-~]{1,200}$"
_STORED_HEADERS = ("content-type", "location")


async def _describe_key(
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=_KEY_PATTERN,
            description="Any string of your own. Repeats with the same key have one effect for a "
            "day.",
        ),
    ] = None,
) -> None:
    del idempotency_key  # Described and validated here; IdempotentRoute reads the header.


class IdempotentRoute(APIRoute):
    """A route that applies the Idempotency-Key of a POST."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if "POST" in options["methods"]:
            options["dependencies"] = [*(options["dependencies"] or ()), Depends(_describe_key)]
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_idempotently(request: Request) -> Response:
            key = request.headers.get("idempotency-key", "")
            if request.method != "POST" or not re.match(_KEY_PATTERN, key, re.ASCII):
                return await handle(request)
            # Before the key: what was stored is for those who may make the request.
            for required in self._list_required_scopes():
                await run_in_threadpool(required.check, request)
            return await _handle_with_key(request, key, handle)

        return handle_idempotently

    def _list_required_scopes(self) -> list[RequiredScope]:
        calls = [one.call for one in self.dependant.dependencies]
        return [call for call in calls if isinstance(call, RequiredScope)]


async def _handle_with_key(
    request: Request, key: str, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    parts: ApiParts = request.app.state.parts
    digest = _compute_digest(
        request.method, str(request.url.path), request.url.query, await request.body()
    )
    claim = await run_in_threadpool(_claim_or_replay, request, parts, key, digest)
    if isinstance(claim, Response):
        return claim
    with idempotency.bind_to_claim(claim):
        response = await _handle(request, handle)
    await run_in_threadpool(_store_response, parts.database, claim, response)
    return response


def _claim_or_replay(request: Request, parts: ApiParts, key: str, digest: str) -> Claim | Response:
    """Claim the key for this request, or return the response of the earlier request."""
    place = _compute_digest(authenticate(request, parts).token.prefix, key)
    with parts.database.transaction() as tx:
        claim = idempotency.claim_key(tx, place, request=digest)
    return _replay(parts.database, claim, digest) if isinstance(claim, EarlierRequest) else claim


async def _handle(
    request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Return the response, also to refusals. An internal error is raised, and keeps the key."""
    try:
        return await handle(request)
    except Exception as error:
        response = build_error_response(request, error)
        if response is None:
            raise
        return response


def _replay(database: Database, earlier: EarlierRequest, digest: str) -> Response:
    if earlier.request != digest:
        raise KeyReusedError(
            "this Idempotency-Key was used for another request: use a new key for each request"
        )
    if earlier.answer is not None:
        stored = earlier.answer
        headers = {**stored.headers, "Idempotent-Replayed": "true"}
        return Response(stored.body, stored.status, headers)
    if earlier.entry is None or not earlier.left:
        raise KeyInUseError(
            "a request with this Idempotency-Key is in progress, or was interrupted just now: "
            f"repeat it in {idempotency.LEASE_SECONDS} s"
        )
    return _redirect_to_effect(database, earlier.entry)


def _redirect_to_effect(database: Database, seq: int) -> Response:
    """Redirect to the run of a request that was interrupted before its response."""
    with database.reading() as tx:
        [entry] = change_log.list_entries_after(tx, seq - 1, limit=1)
    if entry.run is None:
        raise KeyInUseError(
            "the request with this Idempotency-Key was interrupted before its response; it "
            f"wrote entry {seq} of the change log"
        )
    headers = {"Location": f"/api/v1/runs/{entry.run}", "Idempotent-Replayed": "true"}
    return Response(status_code=303, headers=headers)


def _store_response(database: Database, claim: Claim, response: Response) -> None:
    headers = {
        name: response.headers[name] for name in _STORED_HEADERS if name in response.headers
    }
    try:
        with database.transaction() as tx:
            if response.status_code == 503:
                idempotency.release_key(tx, claim)
            else:
                body = bytes(response.body).decode()
                idempotency.store_response(
                    tx, claim, StoredResponse(response.status_code, headers, body)
                )
    except StoreUnavailable as error:
        log.critical("cannot store the response for its Idempotency-Key: %s", error)


def _compute_digest(*values: str | bytes) -> str:
    digest = hashlib.sha256()
    for value in values:
        data = value.encode() if isinstance(value, str) else value
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
