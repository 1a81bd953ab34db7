"""Change tickets: what a ticket system says of one. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.model.canonical import Canonical
from bot.model.errors import InvalidRequestError
from bot.model.times import format_utc, to_microseconds

MAX_KEY_LENGTH = 64
_KEY_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_MAX_LISTED_HOSTS = 10


@dataclass(frozen=True)
class TicketAnswer:
    """A change ticket as its system described it. All of it is bound by the plan's digest."""

    key: str
    """Such as CHG0030001."""
    state: str
    """In the words of the system, such as `Scheduled`."""
    is_approved: bool
    starts_at: int | None = None
    """Begin of the change window in microseconds since 1970; None for no limit."""
    ends_at: int | None = None
    hosts: tuple[str, ...] | None = None
    """The hosts that it covers, sorted; None if the system lists none for any ticket."""

    @property
    def document(self) -> Canonical:
        return {
            "key": self.key,
            "state": self.state,
            "is_approved": self.is_approved,
            "starts_at": self.starts_at,
            "ends_at": self.ends_at,
            "hosts": self.hosts,
        }

    def find_refusal(self, host: str, *, now: int) -> str:
        """Return why the ticket does not permit a change of *host* now; "" if it does."""
        if not self.is_approved:
            return f"Ticket {self.key} is not approved: its state is {self.state or 'empty'}"
        if self.starts_at is not None and now < self.starts_at:
            return f"The window of ticket {self.key} begins at {format_utc(self.starts_at)}"
        if self.ends_at is not None and now >= self.ends_at:
            return f"The window of ticket {self.key} ended at {format_utc(self.ends_at)}"
        if self.hosts is not None and host not in self.hosts:
            return f"Ticket {self.key} does not cover {host}: its hosts are {self._list_hosts()}"
        return ""

    def describe(self) -> str:
        """Return the answer as a note of the plan."""
        parts = [f"Change ticket {self.key}: {self.state}"]
        if self.starts_at is not None:
            parts.append(f"from {format_utc(self.starts_at)}")
        if self.ends_at is not None:
            parts.append(f"until {format_utc(self.ends_at)}")
        if self.hosts is not None:
            parts.append(f"for {self._list_hosts()}")
        return ", ".join(parts)

    def _list_hosts(self) -> str:
        hosts = self.hosts or ()
        more = len(hosts) - _MAX_LISTED_HOSTS
        listed = ", ".join(hosts[:_MAX_LISTED_HOSTS]) or "none"
        return f"{listed} and {more} more" if more > 0 else listed


def parse_ticket_key(text: str) -> str:
    """Return the key of a ticket as it is stored. Raises InvalidRequestError."""
    key = text.strip()
    if key and not _KEY_PATTERN.fullmatch(key):
        raise InvalidRequestError(
            "a ticket is letters, digits, dots, hyphens and underscores, such as CHG0030001"
        )
    return key


def parse_hosts(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of hosts as an answer has them: in lower case, without domains, sorted."""
    return tuple(sorted({name.strip().lower().partition(".")[0] for name in names} - {""}))


def parse_window_time(text: str | None) -> int | None:
    """Return an ISO time with a time zone in microseconds since 1970. Raises ValueError."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return to_microseconds(at)
