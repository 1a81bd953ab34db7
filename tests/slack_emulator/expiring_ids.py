"""What Slack hands out for a short while: trigger ids and response URLs."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.slack_emulator.wire import SlackError

Clock = Callable[[], float]

RESPONSE_SECONDS = 30 * 60
RESPONSE_USES = 5

# How long after its end a ticket is remembered, so that its refusal can say why.
_REMEMBERED = 60 * 60


@dataclass(frozen=True)
class Trigger:
    user: str
    expires: float
    used: bool = False


class Triggers:
    """Trigger ids: each opens one view, within three seconds, for the person who acted."""

    def __init__(self, now: Clock, *, seconds: float = 3.0) -> None:
        self._now = now
        self._seconds = seconds
        self._issued: dict[str, Trigger] = {}

    def issue(self, user: str) -> str:
        now = self._now()
        self._issued = {
            key: old for key, old in self._issued.items() if old.expires + _REMEMBERED > now
        }
        trigger_id = (
            f"{int(self._now() * 1000)}.{secrets.randbelow(10**9)}.{secrets.token_hex(16)}"
        )
        self._issued[trigger_id] = Trigger(user, now + self._seconds)
        return trigger_id

    def redeem(self, trigger_id: str) -> str:
        """Return whose trigger it was, and use it up."""
        trigger = self._issued.get(trigger_id)
        if trigger is None:
            raise SlackError("invalid_trigger_id")
        if trigger.used:
            raise SlackError("exchanged_trigger_id")
        if self._now() > trigger.expires:
            raise SlackError("expired_trigger_id")
        self._issued[trigger_id] = replace(trigger, used=True)
        return trigger.user


@dataclass(frozen=True)
class ResponseTarget:
    """Where answers through one response URL go. `message_ts` is the message acted on, if any."""

    channel: str
    user: str
    message_ts: str = ""
    thread_ts: str = ""
    expires: float = 0.0
    uses: int = 0


class ResponseUrls:
    """Response URLs: five uses within thirty minutes."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._issued: dict[str, ResponseTarget] = {}

    def issue(self, ticket: ResponseTarget) -> str:
        """Return the secret last part of a new response URL."""
        now = self._now()
        self._issued = {
            key: old for key, old in self._issued.items() if old.expires + _REMEMBERED > now
        }
        key = secrets.token_urlsafe(24)
        self._issued[key] = replace(ticket, expires=now + RESPONSE_SECONDS)
        return key

    def use(self, key: str) -> ResponseTarget:
        ticket = self._issued.get(key)
        if ticket is None:
            raise SlackError("invalid_url")
        if self._now() > ticket.expires:
            raise SlackError("expired_url")
        if ticket.uses >= RESPONSE_USES:
            raise SlackError("used_url")
        self._issued[key] = replace(ticket, uses=ticket.uses + 1)
        return ticket
