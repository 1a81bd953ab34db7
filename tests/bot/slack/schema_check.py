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
    "message bot_message": "BotMessage",
    "message message_changed": "MessageChanged",
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


def list_faults(name: str, value: object) -> list[str]:
    """Return what is wrong with a value that should have one of the types of payloads.ts."""
    return [
        f"{name} /{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in _list_errors(name, value)
    ]


def list_faults_of_call(method: str, args: Mapping[str, Any], *, typed: bool = True) -> list[str]:
    """Check the arguments of a call. typed: False where all came as text, in a query or form."""
    if method not in KNOWN:
        return [f"{method} is no method that is called"]
    name = f"{_get_type_name(method)}Arguments"
    # Bolt's own client says the team with every call, whatever the method.
    given = {k: v for k, v in args.items() if v is not None and k != "team_id"}
    if not typed:
        no_text = {
            str(path[0]) for error in _list_errors(name, given) if (path := error.instance_path)
        }
        given |= {name: _parse_text(given[name]) for name in no_text & given.keys()}
    return list_faults(name, given)


def list_faults_of_answer(method: str, answer: object) -> list[str]:
    return list_faults(f"{_get_type_name(method)}Response", answer) if method in KNOWN else []


def list_faults_of_delivery(body: Json) -> list[str]:
    """Check what Slack sends: a command, an interaction or an event."""
    if "command" in body:
        return list_faults("SlashCommand", body)
    kind = str(body.get("type"))
    if kind == "event_callback":
        event = body.get("event")
        inner = _get_event_name(cast("Json", event)) if isinstance(event, dict) else "at all"
        return (
            list_faults(_EVENTS[inner], body)
            if inner in _EVENTS
            else [f"no event {inner} is known"]
        )
    return (
        list_faults(_INTERACTIONS[kind], body)
        if kind in _INTERACTIONS
        else [f"no {kind} is known"]
    )


def _get_event_name(event: Json) -> str:
    """Return the type of an event; of a message that no person wrote, with its subtype."""
    name, subtype = str(event.get("type")), event.get("subtype")
    return f"{name} {subtype}" if f"{name} {subtype}" in _EVENTS else name


def list_faults_of_acknowledgement(body: Json, response: object) -> list[str]:
    """Check what a delivery was answered with; plain text is always right."""
    if isinstance(response, str) or not response:
        return []
    if "command" in body:
        return list_faults("Said", response)
    name = _ANSWERS.get(str(body.get("type")))
    return (
        list_faults(name, response)
        if name
        else [f"nothing is said to {body.get('type')}: {response}"]
    )


def parse_delivery(raw: bytes) -> Json:
    """Read what is posted to the bot."""
    if raw.startswith(b"{"):
        return json.loads(raw)
    fields = dict(parse_qsl(raw.decode(), keep_blank_values=True))
    return json.loads(fields["payload"]) if set(fields) == {"payload"} else fields


@cache
def _load_schemas() -> Mapping[str, Json]:
    if not SCHEMAS.exists():
        pytest.fail("Slack's types are not here yet: make schemas", pytrace=False)
    return json.loads(SCHEMAS.read_text())


@cache
def _build_validator(name: str) -> jsonschema_rs.Draft7Validator:
    return jsonschema_rs.Draft7Validator(_load_schemas()[name])


def _list_errors(name: str, value: object) -> list[jsonschema_rs.ValidationError]:
    return [_find_deepest_error(error) for error in _build_validator(name).iter_errors(value)]


def _find_deepest_error(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """Return what is wrong in the one of several types that comes nearest."""
    while isinstance(error.kind, jsonschema_rs.ValidationErrorKind.AnyOf):
        nearest = max(filter(None, error.kind.context), key=_rank_branch, default=[error])
        if nearest[0] is error:
            break
        error = nearest[0]
    return error


def _rank_branch(branch: list[jsonschema_rs.ValidationError]) -> tuple[bool, int, int]:
    """Say how well a type fits: one of another `type` hardly does."""
    another = any(one.instance_path[-1:] == ["type"] for one in branch)
    return not another, max(len(one.instance_path) for one in branch), -len(branch)


def _get_type_name(method: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in method.split("."))


def _parse_text(value: object) -> object:
    """Return the number, claim or list that a text stands for, if it does."""
    try:
        return json.loads(str(value))
    except ValueError:
        return value


def _parse_object(raw: bytes) -> Json:
    try:
        return json.loads(raw or b"{}")
    except ValueError:
        return {"": "no JSON"}


# --- at the emulator ---


def install_checks(patch: pytest.MonkeyPatch) -> None:
    """Have everything that reaches or leaves any emulator checked from now on."""
    patch.setattr(WebApi, "api", _check_call(WebApi.api))
    patch.setattr(WebApi, "hook", _check_hook(WebApi.hook))
    patch.setattr(Courier, "command", _check_delivery(Courier.command))
    patch.setattr(Courier, "interaction", _check_delivery(Courier.interaction))
    patch.setattr(Courier, "event", _check_event(Courier.event))


Endpoint = Callable[[WebApi, Request], Awaitable[Response]]


def _check_call(handle: Endpoint) -> Endpoint:
    @wraps(handle)
    async def checked(api: WebApi, request: Request) -> Response:
        response = await handle(api, request)
        method = str(request.path_params["method"])
        args: Json = dict(request.query_params)
        typed = "json" in request.headers.get("content-type", "")
        if typed:
            args |= _parse_object(await request.body())
        elif request.method == "POST":
            args |= dict(await request.form())
        violations.extend(list_faults_of_call(method, args, typed=typed))
        if response.status_code == 200:
            violations.extend(list_faults_of_answer(method, json.loads(bytes(response.body))))
        return response

    return checked


def _check_hook(handle: Endpoint) -> Endpoint:
    @wraps(handle)
    async def checked(api: WebApi, request: Request) -> Response:
        response = await handle(api, request)
        violations.extend(list_faults("Said", _parse_object(await request.body())))
        return response

    return checked


Handed = Callable[[Courier, Any], Awaitable[Json | str]]


def _check_delivery(hand_over: Handed) -> Handed:
    @wraps(hand_over)
    async def checked(courier: Courier, body: Any) -> Json | str:
        sent = dict(cast("Mapping[str, Any]", body))
        violations.extend(list_faults_of_delivery(sent))
        acknowledgement = await hand_over(courier, body)
        violations.extend(list_faults_of_acknowledgement(sent, acknowledgement))
        return acknowledgement

    return checked


def _check_event(tell: Callable[[Courier, Json], None]) -> Callable[[Courier, Json], None]:
    @wraps(tell)
    def checked(courier: Courier, payload: Json) -> None:
        violations.extend(list_faults_of_delivery(payload))
        tell(courier, payload)

    return checked
