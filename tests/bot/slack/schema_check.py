"""Check what Slack and Keyturn send each other against Slack's own types.

`make schemas` generates JSON Schemas from them. In every test, each call to the emulator and each
payload from it is checked here.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

import jsonschema_rs
import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.slack_emulator.deliveries import Courier
from tests.slack_emulator.methods import METHODS, WebApi

SCHEMAS = Path(__file__).parent / "schemas" / "generated.json"
# Methods of the Web API that Slack's packages describe.
KNOWN = frozenset(METHODS)

_EVENTS = {
    "app_home_opened": "AppHomeOpened",
    "app_mention": "AppMention",
    "link_shared": "LinkShared",
    "member_joined_channel": "MemberJoinedChannel",
    "message": "Message",
    "user_change": "UserChange",
}
_INTERACTIONS = {
    "block_actions": "BlockActions",
    "block_suggestion": "BlockSuggestion",
    "message_action": "MessageShortcut",
    "shortcut": "GlobalShortcut",
    "view_closed": "ViewClosedAction",
    "view_submission": "ViewSubmitAction",
}
_ANSWERS = {
    "block_suggestion": "Suggested",
    "message_action": "Said",
    "view_submission": "ViewResponseAction",
}

# What was found in the test that runs.
violations: list[str] = []

Json = dict[str, Any]


def faults(name: str, value: object) -> list[str]:
    """Return what is wrong with a value that should have one of the types of payloads.ts."""
    return [
        f"{name} /{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in _errors(name, value)
    ]


def faults_of_call(method: str, args: Mapping[str, Any], *, typed: bool = True) -> list[str]:
    """Judge the arguments of a call. typed: False where all came as text, in a query or form."""
    if method not in KNOWN:
        return [f"{method} is no method that is called"]
    name = f"{_named(method)}Arguments"
    # Bolt's own client says the team with every call, whatever the method.
    given = {k: v for k, v in args.items() if v is not None and k != "team_id"}
    if not typed:
        no_text = {str(path[0]) for error in _errors(name, given) if (path := error.instance_path)}
        given |= {name: _read(given[name]) for name in no_text & given.keys()}
    return faults(name, given)


def faults_of_answer(method: str, answer: object) -> list[str]:
    return faults(f"{_named(method)}Response", answer) if method in KNOWN else []


def faults_of_delivery(body: Json) -> list[str]:
    """Judge what Slack sends: a command, an interaction or an event."""
    if "command" in body:
        return faults("SlashCommand", body)
    kind = str(body.get("type"))
    if kind == "event_callback":
        event = body.get("event")
        inner = str(cast("Json", event).get("type")) if isinstance(event, dict) else "at all"
        return faults(_EVENTS[inner], body) if inner in _EVENTS else [f"no event {inner} is known"]
    return faults(_INTERACTIONS[kind], body) if kind in _INTERACTIONS else [f"no {kind} is known"]


def faults_of_acknowledgement(body: Json, response: object) -> list[str]:
    """Judge what a delivery was answered with; plain text is always right."""
    if isinstance(response, str) or not response:
        return []
    if "command" in body:
        return faults("Said", response)
    name = _ANSWERS.get(str(body.get("type")))
    return (
        faults(name, response) if name else [f"nothing is said to {body.get('type')}: {response}"]
    )


def of_raw(raw: bytes) -> Json:
    """Read what is posted to the bot."""
    if raw.startswith(b"{"):
        return json.loads(raw)
    fields = dict(parse_qsl(raw.decode(), keep_blank_values=True))
    return json.loads(fields["payload"]) if set(fields) == {"payload"} else fields


@cache
def _schemas() -> Mapping[str, Json]:
    if not SCHEMAS.exists():
        pytest.fail("Slack's types are not here yet: make schemas", pytrace=False)
    return json.loads(SCHEMAS.read_text())


@cache
def _validator(name: str) -> jsonschema_rs.Draft7Validator:
    return jsonschema_rs.Draft7Validator(_schemas()[name])


def _errors(name: str, value: object) -> list[jsonschema_rs.ValidationError]:
    return [_deepest(error) for error in _validator(name).iter_errors(value)]


def _deepest(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """Return what is wrong in the one of several types that comes nearest."""
    while isinstance(error.kind, jsonschema_rs.ValidationErrorKind.AnyOf):
        nearest = max(filter(None, error.kind.context), key=_nearness, default=[error])
        if nearest[0] is error:
            break
        error = nearest[0]
    return error


def _nearness(branch: list[jsonschema_rs.ValidationError]) -> tuple[bool, int, int]:
    """Say how well a type fits: one of another `type` hardly does."""
    another = any(one.instance_path[-1:] == ["type"] for one in branch)
    return not another, max(len(one.instance_path) for one in branch), -len(branch)


def _named(method: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in method.split("."))


def _read(value: object) -> object:
    """Return the number, claim or list that a text stands for, if it does."""
    try:
        return json.loads(str(value))
    except ValueError:
        return value


def _object(raw: bytes) -> Json:
    try:
        return json.loads(raw or b"{}")
    except ValueError:
        return {"": "no JSON"}


# --- at the emulator ---


def watch(patch: pytest.MonkeyPatch) -> None:
    """Have everything that reaches or leaves any emulator judged from now on."""
    patch.setattr(WebApi, "api", _judged_call(WebApi.api))
    patch.setattr(WebApi, "hook", _judged_hook(WebApi.hook))
    patch.setattr(Courier, "command", _judged_delivery(Courier.command))
    patch.setattr(Courier, "interaction", _judged_delivery(Courier.interaction))
    patch.setattr(Courier, "event", _judged_event(Courier.event))


Endpoint = Callable[[WebApi, Request], Awaitable[Response]]


def _judged_call(handle: Endpoint) -> Endpoint:
    @wraps(handle)
    async def judged(api: WebApi, request: Request) -> Response:
        response = await handle(api, request)
        method = str(request.path_params["method"])
        args: Json = dict(request.query_params)
        typed = "json" in request.headers.get("content-type", "")
        if typed:
            args |= _object(await request.body())
        elif request.method == "POST":
            args |= dict(await request.form())
        violations.extend(faults_of_call(method, args, typed=typed))
        if response.status_code == 200:
            violations.extend(faults_of_answer(method, json.loads(bytes(response.body))))
        return response

    return judged


def _judged_hook(handle: Endpoint) -> Endpoint:
    @wraps(handle)
    async def judged(api: WebApi, request: Request) -> Response:
        response = await handle(api, request)
        violations.extend(faults("Said", _object(await request.body())))
        return response

    return judged


Handed = Callable[[Courier, Any], Awaitable[Json | str]]


def _judged_delivery(hand_over: Handed) -> Handed:
    @wraps(hand_over)
    async def judged(courier: Courier, body: Any) -> Json | str:
        sent = dict(cast("Mapping[str, Any]", body))
        violations.extend(faults_of_delivery(sent))
        acknowledgement = await hand_over(courier, body)
        violations.extend(faults_of_acknowledgement(sent, acknowledgement))
        return acknowledgement

    return judged


def _judged_event(tell: Callable[[Courier, Json], None]) -> Callable[[Courier, Json], None]:
    @wraps(tell)
    def judged(courier: Courier, payload: Json) -> None:
        violations.extend(faults_of_delivery(payload))
        tell(courier, payload)

    return judged
