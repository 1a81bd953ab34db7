"""What Slack tells us, taken out of its payloads: who, where and what. Pure."""

from dataclasses import dataclass
from typing import cast

from bot.slack.body import Body


@dataclass(frozen=True)
class Account:
    """One Slack account by its ids; names and addresses can be changed by whoever has it.

    team: T…, the account's own. enterprise: E… on Enterprise Grid, else "".
    """

    team: str
    user: str
    enterprise: str = ""


@dataclass(frozen=True)
class Command:
    """A slash command. text: what stands behind it, as Slack sent it."""

    account: Account
    channel: str
    text: str


@dataclass(frozen=True)
class Click:
    """A button pressed on a message. ts: the message. value: what we put into the button."""

    account: Account
    channel: str
    ts: str
    action: str
    value: str


def command(body: Body) -> Command:
    return Command(account(body), _text(body, "channel_id"), _text(body, "text"))


def click(body: Body) -> Click:
    action = _first(body.get("actions"))
    return Click(
        account=account(body),
        channel=_text(body, "container", "channel_id"),
        ts=_text(body, "container", "message_ts"),
        action=_text(action, "action_id"),
        value=_text(action, "value"),
    )


def account(body: Body) -> Account:
    """Return whose payload it is. A button's tells the team of its user, a command's only one."""
    if isinstance(body.get("user"), dict):
        return Account(
            team=_text(body, "user", "team_id") or _text(body, "team", "id"),
            user=_text(body, "user", "id"),
            enterprise=_text(body, "enterprise", "id"),
        )
    return Account(
        team=_text(body, "team_id"),
        user=_text(body, "user_id"),
        enterprise=_text(body, "enterprise_id"),
    )


def meaning(body: Body) -> str:
    """Return what stays the same when Slack delivers a thing again, newly signed; "" if nothing.

    The team is not part of it: on Enterprise Grid it can differ between deliveries.
    """
    if body.get("type") == "event_callback":
        return _joined("event", _text(body, "event_id"))
    if body.get("type") == "block_actions":
        action = _first(body.get("actions"))
        return _joined(
            "click",
            _text(body, "container", "message_ts") or _text(body, "container", "view_id"),
            _text(action, "action_ts"),
            _text(body, "user", "id"),
            _text(action, "action_id"),
        )
    return _joined("trigger", _text(body, "trigger_id"))


def _joined(*parts: str) -> str:
    return " ".join(parts) if all(parts) else ""


def _first(value: object) -> Body:
    values = cast("list[object]", value) if isinstance(value, list) else []
    return cast("Body", values[0]) if values and isinstance(values[0], dict) else {}


def _text(body: Body, *path: str) -> str:
    """Return the text at the end of a path of names; "" where there is none."""
    found: object = body
    for name in path:
        found = _member(found, name)
    return found if isinstance(found, str) else ""


def _member(value: object, name: str) -> object:
    return cast("Body", value).get(name) if isinstance(value, dict) else None
