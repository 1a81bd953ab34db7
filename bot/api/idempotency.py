"""Once: a request that carries an Idempotency-Key has one effect, however often it is made.

The answer is kept for a day by the key and the person; the same request gets it again. Where it
was cut off before it was answered, it is done anew if it had done nothing, and otherwise leads to
what it did.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from bot.api.auth import recognised
from bot.api.deps import ApiParts
from bot.api.errors import StillAtIt, UsedForSomethingElse, answer
from bot.audit import change_log
from bot.db import idempotency
from bot.db.database import Database, StoreUnavailable
from bot.db.idempotency import Claim, EarlierRequest, StoredResponse

log = logging.getLogger(__name__)

_FITS = r"^[!-~]{1,200}$"
_KEPT_HEADERS = ("content-type", "location")


async def _key(
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=_FITS,
            description="A word of your own: the same request with it has one effect, for a day.",
        ),
    ] = None,
) -> None:
    del idempotency_key  # It is described and checked here, and heeded below.


DESCRIBED = Depends(_key)


class Once(APIRoute):
    """A route that heeds the key of a POST."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def once(request: Request) -> Response:
            key = request.headers.get("idempotency-key", "")
            if request.method != "POST" or not re.match(_FITS, key, re.ASCII):
                return await handle(request)
            return await _once(request, key, handle)

        return once


async def _once(
    request: Request, key: str, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    parts: ApiParts = request.app.state.parts
    mine = _digest(request.method, str(request.url.path), request.url.query, await request.body())
    claim = await run_in_threadpool(_claimed, request, parts, key, mine)
    if isinstance(claim, Response):
        return claim
    with idempotency.bound_to_claim(claim):
        given = await _given(request, handle)
    await run_in_threadpool(_keep, parts.database, claim, given)
    return given


def _claimed(request: Request, parts: ApiParts, key: str, mine: str) -> Claim | Response:
    """Take the key for this request, or return what to answer instead."""
    place = _digest(recognised(request, parts).id, key)
    claim = _claim(parts.database, place, mine)
    return _again(parts.database, claim, mine) if isinstance(claim, EarlierRequest) else claim


async def _given(
    request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Return the answer, to what it raises as well; a fault of ours goes on, and keeps the key."""
    try:
        return await handle(request)
    except Exception as error:
        told = answer(request, error)
        if told is None:
            raise
        return told


def _claim(database: Database, key: str, request: str) -> Claim | EarlierRequest:
    with database.transaction() as tx:
        return idempotency.claim_key(tx, key, request=request)


def _again(database: Database, earlier: EarlierRequest, mine: str) -> Response:
    if earlier.request != mine:
        raise UsedForSomethingElse(
            "this Idempotency-Key came with another request: give each request its own"
        )
    if earlier.answer is not None:
        told = earlier.answer
        headers = {**told.headers, "Idempotent-Replayed": "true"}
        return Response(told.body, told.status, headers)
    if earlier.entry is None or not earlier.left:
        raise StillAtIt(
            "the request with this Idempotency-Key is being worked on, or was cut off just now: "
            f"make it again in {idempotency.LEASE_SECONDS} s"
        )
    return _done(database, earlier.entry)


def _done(database: Database, number: int) -> Response:
    """Lead to what a request did that was cut off before it was answered."""
    with database.reading() as tx:
        [entry] = change_log.list_entries_after(tx, number - 1, limit=1)
    if entry.run is None:
        raise StillAtIt(
            "the request with this Idempotency-Key was cut off before it was answered; what it "
            f"did is entry {number} of the change log"
        )
    headers = {"Location": f"/api/v1/runs/{entry.run}", "Idempotent-Replayed": "true"}
    return Response(status_code=303, headers=headers)


def _keep(database: Database, claim: Claim, given: Response) -> None:
    headers = {name: given.headers[name] for name in _KEPT_HEADERS if name in given.headers}
    try:
        with database.transaction() as tx:
            if given.status_code == 503:
                idempotency.release_key(tx, claim)
            else:
                body = bytes(given.body).decode()
                idempotency.store_response(
                    tx, claim, StoredResponse(given.status_code, headers, body)
                )
    except StoreUnavailable as trouble:
        log.critical("an answer was not kept for its Idempotency-Key: %s", trouble)


def _digest(*parts: str | bytes) -> str:
    summed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        summed.update(len(data).to_bytes(8, "big") + data)
    return summed.hexdigest()
