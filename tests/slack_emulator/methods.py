"""Slack's Web API as the bot calls it: always 200 and JSON, `ok` true or false with an error."""

import asyncio
import hmac
import json

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.slack_emulator import (
    api_apps,
    api_chat,
    api_conversations,
    api_directory,
    api_files,
    api_views,
)
from tests.slack_emulator.calls import Call, CallContext, Methods, decoded_args
from tests.slack_emulator.drafts import respond
from tests.slack_emulator.expiring_ids import ResponseUrls
from tests.slack_emulator.uploads import MOST_BYTES
from tests.slack_emulator.wire import Json, SlackError, record, text

METHODS: Methods = {
    **api_directory.METHODS,
    **api_chat.METHODS,
    **api_conversations.METHODS,
    **api_views.METHODS,
    **api_files.METHODS,
    **api_apps.METHODS,
}

MOST_BODY = 1024 * 1024


class WebApi:
    """Answers `/api/<method>`, response URLs and upload URLs."""

    def __init__(
        self, context: CallContext, hooks: ResponseUrls, *, bot_token: str, app_token: str
    ) -> None:
        self.context = context
        self._hooks = hooks
        self._bot_token, self._app_token = bot_token, app_token
        # Every call as it came: its method and arguments without the token.
        self.calls: list[tuple[str, Json]] = []

    async def api(self, request: Request) -> Response:
        faults = self.context.workspace.faults
        await asyncio.sleep(faults.latency)
        if faults.limited():
            return _refusal("ratelimited", status=429, retry_after=faults.retry_after)
        if faults.failed():
            return PlainTextResponse("upstream connect error", 503)
        try:
            args = await _arguments(request)
            method = request.path_params["method"]
            self._authenticate(request, args, method)
            body = {"ok": True, **self._call(method, args)}
            return JSONResponse(body, headers={"x-oauth-scopes": self._scopes(method)})
        except SlackError as error:
            return _refusal(error.error, messages=error.messages)

    def _scopes(self, method: str) -> str:
        """Return what the token may, as Slack tells it with each answer."""
        of_app = method in api_apps.OF_THE_APP
        return "connections:write" if of_app else ",".join(self.context.workspace.app.scopes)

    def _authenticate(self, request: Request, args: Json, method: str) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        token = given if scheme.lower() == "bearer" else text(args.get("token"))
        args.pop("token", None)
        if not token:
            raise SlackError("not_authed")
        right, other = self._bot_token, self._app_token
        if method in api_apps.OF_THE_APP:
            right, other = other, right
        if hmac.compare_digest(token.encode(), other.encode()):
            raise SlackError("not_allowed_token_type")
        if not hmac.compare_digest(token.encode(), right.encode()):
            raise SlackError("invalid_auth")

    def _call(self, name: str, args: Json) -> Json:
        method = METHODS.get(name)
        if method is None:
            raise SlackError("unknown_method")
        self.calls.append((name, args))
        del self.calls[:-1000]
        return method(Call(self.context, decoded_args(args)))

    async def hook(self, request: Request) -> Response:
        """Take an answer through a response URL."""
        try:
            body = record(json.loads(await _body(request, MOST_BODY) or b"{}"))
        except ValueError:
            return PlainTextResponse("invalid_payload", 400)
        try:
            ticket = self._hooks.use(request.path_params["key"])
        except SlackError as error:
            return JSONResponse({"ok": False, "error": error.error}, 404)
        try:
            respond(self.context.workspace, ticket, body)
        except SlackError as error:
            failure = {"ok": False, "error": error.error}
            return JSONResponse(failure | {"response_metadata": {"messages": error.messages}}, 500)
        return PlainTextResponse("ok")

    async def upload(self, request: Request) -> Response:
        """Take a file's bytes, raw or as a form's first file."""
        try:
            length = self.context.uploads.fill(request.path_params["key"], await _file(request))
        except SlackError as error:
            return PlainTextResponse(error.error, 404)
        return PlainTextResponse(f"OK - {length}")


def _refusal(
    error: str, *, messages: tuple[str, ...] = (), status: int = 200, retry_after: int = 0
) -> Response:
    body: Json = {"ok": False, "error": error}
    if messages:
        body["errors"] = list(messages)
        body["response_metadata"] = {"messages": list(messages)}
    headers = {"retry-after": str(retry_after)} if retry_after else {}
    return JSONResponse(body, status, headers=headers)


async def _arguments(request: Request) -> Json:
    """Return arguments of the query, the form and the JSON body together."""
    args: Json = dict(request.query_params)
    kind = request.headers.get("content-type", "")
    if request.method != "POST":
        return args
    body = await _body(request, MOST_BODY)
    if "json" in kind:
        try:
            return args | record(json.loads(body or b"{}"))
        except ValueError:
            raise SlackError("invalid_json") from None
    form = await request.form()
    return args | {key: value for key, value in form.items() if isinstance(value, str)}


async def _file(request: Request) -> bytes:
    if "multipart" not in request.headers.get("content-type", ""):
        return await _body(request, MOST_BYTES)
    async with request.form() as form:
        for value in form.values():
            if not isinstance(value, str):
                return await value.read()
    return b""


async def _body(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > most:
        raise SlackError("invalid_arguments", ["[ERROR] the request is too large"])
    body = await request.body()
    if len(body) > most:
        raise SlackError("invalid_arguments", ["[ERROR] the request is too large"])
    return body
