"""Payloads as Slack sends and signs them."""

import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from tests.policies import TEAM

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
Headers = Sequence[tuple[bytes, bytes]]

_FORM = b"application/x-www-form-urlencoded"
_numbers = itertools.count(1)


def signed(
    raw: bytes, *, at: float | None = None, secret: str = SECRET, kind: bytes = _FORM
) -> Headers:
    """Return the headers of a request that Slack signed. at: seconds, now if it is left out."""
    timestamp = str(int(time.time() if at is None else at)).encode()
    mac = hmac.new(secret.encode(), b"v0:" + timestamp + b":" + raw, hashlib.sha256)
    return [
        (b"content-type", kind),
        (b"x-slack-request-timestamp", timestamp),
        (b"x-slack-signature", b"v0=" + mac.hexdigest().encode()),
    ]


def slash(text: str, user: str = "U0DORA", channel: str = "C0OPS", **other: str) -> bytes:
    fields = {
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "team_id": TEAM,
        "team_domain": "keyturn",
        "channel_id": channel,
        "channel_name": "ops",
        "user_id": user,
        "user_name": user.lower(),
        "command": "/keyturn",
        "text": text,
        "api_app_id": "A0KEYTURN",
        "is_enterprise_install": "false",
        "response_url": "https://hooks.slack.com/commands/T0KEYTURN/1/x",
        "trigger_id": f"{next(_numbers)}.13345224609.738474920",
    }
    return urlencode(fields | other).encode()


def click(
    action: str, value: str, user: str, *, channel: str, ts: str, action_ts: str = ""
) -> dict[str, Any]:
    stamp = action_ts or f"1700000000.{next(_numbers):06d}"
    return {
        "type": "block_actions",
        "user": {"id": user, "username": user.lower(), "name": user, "team_id": TEAM},
        "api_app_id": "A0KEYTURN",
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "container": {
            "type": "message",
            "message_ts": ts,
            "channel_id": channel,
            "is_ephemeral": False,
        },
        "trigger_id": f"{next(_numbers)}.13345224609.8534564800",
        "team": {"id": TEAM, "domain": "keyturn"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": channel, "name": "ops"},
        "message": {"type": "message", "ts": ts, "text": "…"},
        "response_url": "https://hooks.slack.com/actions/T0KEYTURN/1/x",
        "actions": [
            {
                "type": "button",
                "action_id": action,
                "block_id": "b",
                "text": {"type": "plain_text", "text": action},
                "value": value,
                "action_ts": stamp,
            }
        ],
    }


def in_view(kind: str, view: dict[str, Any], user: str, **other: Any) -> dict[str, Any]:
    """kind: view_submission, block_actions or block_suggestion. view: what is special about it."""
    place = {"container": {"type": "view", "view_id": view["id"]}}
    return (place if kind != "view_submission" else {}) | {
        "type": kind,
        "user": {"id": user, "username": user.lower(), "name": user, "team_id": TEAM},
        "api_app_id": "A0KEYTURN",
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "team": {"id": TEAM, "domain": "keyturn"},
        "enterprise": None,
        "is_enterprise_install": False,
        "trigger_id": f"{next(_numbers)}.13345224609.8534564800",
        "view": a_view(view),
        **other,
    }


def a_view(special: dict[str, Any]) -> dict[str, Any]:
    """Return a view with all that Slack tells of one."""
    return {
        "team_id": TEAM,
        "app_id": "A0KEYTURN",
        "bot_id": "B0KEYTURN",
        "title": {"type": "plain_text", "text": "Keyturn"},
        "close": None,
        "submit": None,
        "callback_id": "",
        "private_metadata": "",
        "hash": "1.a",
        "state": {"values": {}},
        "root_view_id": None,
        "previous_view_id": None,
        "clear_on_close": False,
        "notify_on_close": False,
        **special,
    }


def message_action(
    callback: str,
    text: str,
    user: str,
    *,
    channel: str = "C0OPS",
    ts: str = "1700000000.000001",
    message: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Choose something in the menu of a message. message: what it has instead of the text."""
    return {
        "type": "message_action",
        "callback_id": callback,
        "trigger_id": f"{next(_numbers)}.13345224609.8534564800",
        "action_ts": f"1700000000.{next(_numbers):06d}",
        "message_ts": ts,
        "user": {"id": user, "name": user, "team_id": TEAM},
        "team": {"id": TEAM, "domain": "keyturn"},
        "channel": {"id": channel, "name": "ops"},
        "enterprise": None,
        "is_enterprise_install": False,
        "api_app_id": "A0KEYTURN",
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "response_url": "https://hooks.slack.com/actions/T0KEYTURN/1/x",
        "message": {
            "type": "message",
            "user": "U0STAN",
            "ts": ts,
            "text": text,
            **(message or {}),
        },
    }


def interaction(payload: dict[str, Any]) -> bytes:
    return urlencode({"payload": json.dumps(payload)}).encode()


def event(
    identifier: str,
    kind: str = "app_home_opened",
    *,
    user: str = "U0DORA",
    tab: str = "messages",
) -> bytes:
    inner = {"type": kind, "user": user, "channel": "D0DORA", "tab": tab}
    return _enveloped(identifier, inner | {"event_ts": "1700000000.000001"})


def mention(text: str, user: str = "U0DORA", **other: str) -> bytes:
    """Write a message that mentions the bot. other: such as its thread_ts."""
    number = next(_numbers)
    ts = f"1700000000.{number:06d}"
    inner = {"type": "app_mention", "user": user, "text": text, "channel": "C0OPS"}
    return _enveloped(f"EvMention{number}", inner | {"ts": ts, "event_ts": ts} | other)


def direct_message(text: str, user: str = "U0DORA", **other: str) -> bytes:
    """Write to the bot in its direct messages. other: such as its thread_ts or subtype."""
    number = next(_numbers)
    ts = f"1700000000.{number:06d}"
    inner = {
        "type": "message",
        "channel_type": "im",
        "user": user,
        "text": text,
        "channel": f"D{user[1:]}",
        "ts": ts,
        "event_ts": ts,
    }
    return _enveloped(f"EvDirect{number}", inner | other)


def app_message(
    message: dict[str, Any], *, channel: str = "C0OPS", ts: str = "", **other: Any
) -> bytes:
    """Post a message as another program. other: such as its subtype or thread_ts."""
    number = next(_numbers)
    stamp = ts or f"1700000000.{number:06d}"
    inner = {
        "type": "message",
        "subtype": "bot_message",
        "channel_type": "channel",
        "bot_id": "B0ALERTS",
        "channel": channel,
        "ts": stamp,
        "event_ts": stamp,
        "text": "",
    }
    return _enveloped(f"EvApp{number}", inner | message | other)


def changed_message(message: dict[str, Any], *, ts: str) -> bytes:
    """Edit a message that another program posted."""
    number = next(_numbers)
    posted = json.loads(app_message(message, ts=ts))["event"]
    inner = {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "channel": posted["channel"],
        "channel_type": "channel",
        "ts": f"1700000000.{number:06d}",
        "event_ts": f"1700000000.{number:06d}",
        "message": posted,
        "previous_message": posted,
    }
    return _enveloped(f"EvChanged{number}", inner)


def shared_link(
    *urls: str, user: str = "U0DORA", channel: str = "C0OPS", source: str = "conversations_history"
) -> bytes:
    """Post a message with links; its timestamp is new each time."""
    number = next(_numbers)
    ts = f"1700000000.{number:06d}"
    inner = {
        "type": "link_shared",
        "channel": channel,
        "is_bot_user_member": True,
        "user": user,
        "message_ts": ts,
        "unfurl_id": f"{channel}.{ts}",
        "source": source,
        "links": [{"domain": "keyturn.example.com", "url": url} for url in urls],
        "event_ts": ts,
    }
    return _enveloped(f"EvLink{number}", inner)


def _enveloped(identifier: str, inner: dict[str, Any]) -> bytes:
    outer = {
        "token": "x",
        "team_id": TEAM,
        "api_app_id": "A0KEYTURN",
        "event": inner,
        "type": "event_callback",
        "event_id": identifier,
        "event_time": 1700000000,
    }
    return json.dumps(outer).encode()
