"""Modals and Home tabs: what each person has open, and Slack's rules for changing it."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.slack_emulator.change_sequence import ChangeSequence
from tests.slack_emulator.directory import Installation
from tests.slack_emulator.wire import Json, SlackError, text

MOST_MODALS = 3


@dataclass(frozen=True)
class View:
    """A modal or a Home tab. `payload` is what the bot gave; ids and hash are ours."""

    id: str
    user: str
    payload: Json
    hash: str
    root_id: str
    previous_id: str = ""
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def external_id(self) -> str:
        return text(self.payload.get("external_id"))


class Views:
    """The stack of modals of each person, and their Home."""

    def __init__(self, changes: ChangeSequence) -> None:
        self._changes = changes
        self._stacks: dict[str, list[View]] = {}
        self._homes: dict[str, View] = {}

    def stack(self, user: str) -> list[View]:
        return list(self._stacks.get(user, ()))

    def top(self, user: str) -> View | None:
        stack = self._stacks.get(user)
        return stack[-1] if stack else None

    def home(self, user: str) -> View | None:
        return self._homes.get(user)

    def open(self, user: str, payload: Json) -> View:
        """Open a first modal; one that was open before it is gone, as in Slack."""
        self._external_id_is_free(payload)
        self._stacks[user] = []
        return self._pushed(user, payload)

    def push(self, user: str, payload: Json) -> View:
        self._external_id_is_free(payload)
        if len(self._stacks.get(user, ())) >= MOST_MODALS:
            raise SlackError("push_limit_reached")
        return self._pushed(user, payload)

    def _pushed(self, user: str, payload: Json) -> View:
        stack = self._stacks.setdefault(user, [])
        view_id = "V" + secrets.token_hex(5).upper()
        root, previous = (stack[0].id, stack[-1].id) if stack else (view_id, "")
        view = View(view_id, user, payload, _hash(), root, previous)
        stack.append(view)
        self._changes.advance()
        return view

    def find(self, *, view_id: str = "", external_id: str = "") -> View:
        for view in self._all():
            if view.id == view_id or (external_id and view.external_id == external_id):
                return view
        raise SlackError("not_found")

    def update(self, view: View, payload: Json, *, expected_hash: str = "") -> View:
        """Change an open view in its place. `expected_hash` is what the bot last saw, if told."""
        if expected_hash and expected_hash != view.hash:
            raise SlackError("hash_conflict")
        return self._replaced(replace(view, payload=payload, hash=_hash(), errors={}))

    def complain(self, view: View, errors: Mapping[str, str]) -> View:
        """Show what is wrong under the blocks of a view."""
        return self._replaced(replace(view, errors=dict(errors)))

    def publish(self, user: str, payload: Json, *, expected_hash: str = "") -> View:
        home = self._homes.get(user)
        if home is None:
            view_id = "V" + secrets.token_hex(5).upper()
            self._homes[user] = View(view_id, user, payload, _hash(), view_id)
            self._changes.advance()
            return self._homes[user]
        return self.update(home, payload, expected_hash=expected_hash)

    def close(self, view: View) -> None:
        """Close one modal; the one beneath it is seen again."""
        stack = self._stacks.get(view.user, [])
        self._stacks[view.user] = [other for other in stack if other.id != view.id]
        self._changes.advance()

    def clear(self, user: str) -> None:
        self._stacks.pop(user, None)
        self._changes.advance()

    def _all(self) -> list[View]:
        modals = [view for stack in self._stacks.values() for view in stack]
        return modals + list(self._homes.values())

    def _external_id_is_free(self, payload: Json) -> None:
        wanted = text(payload.get("external_id"))
        if wanted and any(view.external_id == wanted for view in self._all()):
            raise SlackError("duplicate_external_id")

    def _replaced(self, view: View) -> View:
        if self._homes.get(view.user, view).id == view.id and view.payload.get("type") == "home":
            self._homes[view.user] = view
        stack = self._stacks.get(view.user, [])
        self._stacks[view.user] = [view if other.id == view.id else other for other in stack]
        self._changes.advance()
        return view


def view_json(view: View, app: Installation, state: Json) -> Json:
    """Return the view as Slack's answers and payloads show it. `state`: block → action → value."""
    given = view.payload
    return {
        "id": view.id,
        "team_id": app.team_id,
        "type": given.get("type"),
        "blocks": given.get("blocks", []),
        "private_metadata": given.get("private_metadata", ""),
        "callback_id": given.get("callback_id", ""),
        "external_id": given.get("external_id", ""),
        "state": {"values": state},
        "hash": view.hash,
        # A Home has no title, and Slack tells one all the same.
        "title": given.get("title") or {"type": "plain_text", "text": "View Title"},
        "close": given.get("close"),
        "submit": given.get("submit"),
        "clear_on_close": given.get("clear_on_close", False),
        "notify_on_close": given.get("notify_on_close", False),
        "previous_view_id": view.previous_id or None,
        "root_view_id": view.root_id,
        "app_id": app.app_id,
        "app_installed_team_id": app.team_id,
        "bot_id": app.bot_id,
    }


def _hash() -> str:
    return f"{secrets.randbelow(10**10)}.{secrets.token_hex(4)}"
