"""A host's clock beside Keyturn's own, for runbooks whose request names a moment."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from runbooks._plan import Refused

# Hosts tell most moments by the second.
_SECOND = timedelta(seconds=1)
# So far may the clocks of the machines that Keyturn itself runs on be apart.
_MAX_SKEW = timedelta(seconds=5)


@dataclass(frozen=True)
class Clock:
    """What a host's clock and Keyturn's showed at the same time.

    A request names a moment by Keyturn's clock; what happened on a host is told by the host's own.
    The difference of the two is taken out, so that a clock that lags or leads changes nothing.
    """

    host: datetime
    keyturn: datetime

    @classmethod
    def read(cls, host: datetime) -> "Clock":
        """Return both clocks. host: what the host has just answered."""
        return cls(host, datetime.now(UTC))

    def is_since(self, happened: datetime, since: datetime) -> bool:
        """Return whether something happened after a moment.

        happened: by the host's clock, to the second. since: by Keyturn's.
        """
        return happened + _SECOND > since + (self.host - self.keyturn)

    def refuse_future(self, since: datetime) -> None:
        """Raise Refused for a moment that is still to come: nothing could ever satisfy it."""
        if since > self.keyturn + _MAX_SKEW:
            raise Refused("since is still to come: give a moment that has passed, or leave it out")
