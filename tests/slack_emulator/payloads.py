"""The payloads that Slack sends to a bot, written as Slack writes them. No I/O.

Sources: https://docs.slack.dev/interactivity/implementing-slash-commands,
https://docs.slack.dev/reference/interaction-payloads and https://docs.slack.dev/reference/events
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from tests.slack_emulator.directory import EmulatedPerson, Installation
from tests.slack_emulator.wire import Json
from tests.slack_emulator.workspace import Channel


@dataclass(frozen=True)
class Context:
    """What every payload tells: the bot as installed, and the person who acts."""

    app: Installation
    person: EmulatedPerson

    @property
    def team(self) -> Json:
        return {"id": self.app.team_id, "domain": self.app.team_domain}

    @property
    def user(self) -> Json:
        return {
            "id": self.person.user_id,
            "username": self.person.name,
            "name": self.person.name,
            "team_id": self.app.team_id,
        }

    @property
    def common(self) -> Json:
        return {
            "user": self.user,
            "api_app_id": self.app.app_id,
            "token": "deprecated",
            "team": self.team,
            "enterprise": None,
            "is_enterprise_install": False,
        }


def channel_name(channel: Channel) -> str:
    """Return the name that payloads show: what is private keeps its name to itself."""
    private = {"im": "directmessage", "group": "privategroup"}
    return private.get(channel.kind, channel.name)


def channel_ref(channel: Channel) -> Json:
    return {"id": channel.id, "name": channel_name(channel)}


@dataclass(frozen=True)
class Typed:
    """A slash command as it was typed: `/keyturn` and the words after it."""

    command: str
    words: str


def slash_command(
    context: Context, channel: Channel, typed: Typed, *, response_url: str, trigger_id: str
) -> Mapping[str, str]:
    return {
        "token": "deprecated",
        "team_id": context.app.team_id,
        "team_domain": context.app.team_domain,
        "channel_id": channel.id,
        "channel_name": channel_name(channel),
        "user_id": context.person.user_id,
        "user_name": context.person.name,
        "command": typed.command,
        "text": typed.words,
        "api_app_id": context.app.app_id,
        "is_enterprise_install": "false",
        "response_url": response_url,
        "trigger_id": trigger_id,
    }


def block_actions(context: Context, place: Json, *, action: Json, trigger_id: str) -> Json:
    """place: container, channel, message or view, state and response_url, as they apply."""
    return {
        "type": "block_actions",
        **context.common,
        "trigger_id": trigger_id,
        **place,
        "actions": [action],
    }


def view_submission(context: Context, view: Json, *, trigger_id: str) -> Json:
    return {
        "type": "view_submission",
        **context.common,
        "trigger_id": trigger_id,
        "view": view,
        "response_urls": [],
    }


def view_closed(context: Context, view: Json, *, is_cleared: bool) -> Json:
    return {"type": "view_closed", **context.common, "view": view, "is_cleared": is_cleared}


def block_suggestion(context: Context, place: Json, *, element: Json, typed: str) -> Json:
    """element: block_id and action_id of the select that asks."""
    return {"type": "block_suggestion", **context.common, **place, **element, "value": typed}


def shortcut(context: Context, callback_id: str, *, trigger_id: str, action_ts: str) -> Json:
    return {
        "type": "shortcut",
        **context.common,
        "callback_id": callback_id,
        "trigger_id": trigger_id,
        "action_ts": action_ts,
    }


def message_action(context: Context, callback_id: str, place: Json, *, trigger_id: str) -> Json:
    """place: channel, message, message_ts, response_url and action_ts."""
    return {
        "type": "message_action",
        **context.common,
        "callback_id": callback_id,
        "trigger_id": trigger_id,
        **place,
    }


def event(app: Installation, inner: Json, *, moment: float) -> Json:
    """Return the envelope of an event; its `event_id` stays the same when delivered again."""
    return {
        "token": "deprecated",
        "team_id": app.team_id,
        "api_app_id": app.app_id,
        "event": inner,
        "type": "event_callback",
        "event_id": "Ev" + secrets.token_hex(5).upper(),
        "event_time": int(moment),
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": app.team_id,
                "user_id": app.bot_user_id,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
    }
