"""Parse the raw bodies of Slack's requests. Pure.

Bolt 1.30 takes any form that contains the word "payload" for one of a button or a modal: a slash
command with that word in its text, channel name or user name then ends in a 404. It also answers
invalid UTF-8 and broken JSON with 500.
"""

import json
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field, ValidationError, model_validator

# As received from outside: only bot.slack.payloads reads it.
Body = dict[str, Any]

_MAX_FIELDS = 100


class _SlackObject(BaseModel):
    """A person, a team or a channel. Other fields are not checked."""

    id: str | None = None
    team_id: str | None = None
    enterprise_id: str | None = None


class _ActionElement(BaseModel):
    """The element that was clicked."""

    type: str | None = None
    action_id: str
    block_id: str | None = None


class _View(BaseModel):
    type: str | None = None
    callback_id: str | None = None
    team_id: str | None = None
    app_installed_team_id: str | None = None


class _Event(BaseModel):
    type: str | None = None


class _Authorization(BaseModel):
    enterprise_id: str | None = None
    team_id: str | None = None
    is_enterprise_install: bool | None = None


class _PayloadShape(BaseModel):
    """The parts of a payload whose types Bolt 1.30 assumes without a check.

    Source: slack_bolt/request/internals.py and slack_bolt/request/payload_utils.py
    """

    type: str | None = None
    command: str | None = None
    callback_id: str | None = None
    action_id: str | None = None
    block_id: str | None = None
    team_id: str | None = None
    user_id: str | None = None
    channel_id: str | None = None
    enterprise_id: str | None = None
    response_url: str | None = None
    user: _SlackObject | None = None
    team: _SlackObject | None = None
    enterprise: _SlackObject | None = None
    channel: _SlackObject | None = None
    view: _View | None = None
    event: _Event | None = None
    message: dict[str, Any] | None = None
    actions: Annotated[list[_ActionElement], Field(min_length=1)] | None = None
    authorizations: list[_Authorization] | None = None
    response_urls: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _check_required_part(self) -> "_PayloadShape":
        needed = {
            "block_actions": self.actions,
            "event_callback": self.event,
            "view_submission": self.view,
            "view_closed": self.view,
        }
        if self.type in needed and needed[self.type] is None:
            raise ValueError(f"a {self.type} lacks its required part")
        return self


class MalformedBodyError(ValueError):
    """The body is neither a form nor JSON in Slack's format."""


def parse_body(body: str, content_type: str | None) -> Body:
    """Return the form's fields, the form's `payload`, or the JSON object.

    Raises MalformedBodyError.
    """
    if not body:
        return {}
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == "application/json" or body.startswith("{"):
        return _parse_json_object(body)
    fields = _parse_form(body)
    return _parse_json_object(fields["payload"]) if "payload" in fields else fields


def check_shape(body: Body) -> Body:
    """Return *body* unchanged. Raises MalformedBodyError if it is not in Slack's format."""
    try:
        _PayloadShape.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the payload"
        raise MalformedBodyError(f"{where}: {first['msg']}") from None
    return body


def _parse_form(body: str) -> Body:
    try:
        pairs = parse_qsl(
            body, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:
        raise MalformedBodyError("the form cannot be read") from error
    return dict(pairs)


def _parse_json_object(text: str) -> Body:
    try:
        found = json.loads(text, parse_constant=_reject_constant)
        # Half a surrogate pair is valid JSON but cannot be encoded as UTF-8.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MalformedBodyError("the JSON cannot be read") from error
    if not isinstance(found, dict):
        raise MalformedBodyError("the JSON is not an object")
    return found  # pyright: ignore[reportUnknownVariableType] - its keys are strings, as in all JSON


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
