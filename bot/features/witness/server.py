"""The addresses of a witness: `/add-checkpoint`, and the newest checkpoint of each log."""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.features.witness.state import WitnessState
from bot.model.verifier_keys import MAX_NOTE_BYTES


def build_application(state: WitnessState) -> Starlette:
    """Return the application that answers logs and monitors."""

    async def add_checkpoint(request: Request) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_NOTE_BYTES:
                return PlainTextResponse(
                    "the request is too long\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                )
        answer = await run_in_threadpool(state.add_checkpoint, bytes(body))
        return Response(answer.body, answer.status, media_type=answer.media_type)

    async def get_checkpoint(request: Request) -> Response:
        note = await run_in_threadpool(state.get_checkpoint, request.path_params["origin_hash"])
        if note is None:
            return PlainTextResponse("nothing was cosigned of this log\n", HTTPStatus.NOT_FOUND)
        return PlainTextResponse(note)

    return Starlette(
        routes=[
            Route("/add-checkpoint", add_checkpoint, methods=["POST"]),
            Route("/{origin_hash}/checkpoint", get_checkpoint),
        ]
    )
