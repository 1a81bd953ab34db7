"""A host's clock compared with Keyturn's, for runbooks with a time in their fields."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from runbooks._plan import Refused

# Most times on hosts are precise to the second.
_SECOND = timedelta(seconds=1)
# How far the clocks of Keyturn's own machines may differ.
_MAX_SKEW = timedelta(seconds=5)


@dataclass(frozen=True)
class Clock:
    """The host's clock and Keyturn's clock, read at the same time.

    Times in a request are by Keyturn's clock, and times of events on a host by the host's. The
    difference between the two is subtracted, so a wrong clock on a host does not matter.
    """

    host: datetime
    """The host's clock."""
    keyturn: datetime
    """Keyturn's clock."""

    @classmethod
    def read(cls, host: datetime) -> "Clock":
        """Return both clocks. host: the time that the host has just returned."""
        return cls(host, datetime.now(UTC))

    def is_since(self, event_time: datetime, since: datetime) -> bool:
        """Return whether an event on the host was after a time.

        event_time: by the host's clock, to the second. since: by Keyturn's clock.
        """
        return event_time + _SECOND > since + (self.host - self.keyturn)

    def refuse_future(self, since: datetime) -> None:
        """Raise Refused for a time in the future, which no event could satisfy."""
        if since > self.keyturn + _MAX_SKEW:
            raise Refused("since is in the future: enter a past time, or leave it empty")
