"""The charter as it is now: the rules are asked once for as long as they answer the same."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from bot.charter.charter import Charter
from bot.charter.drafting import charter, frosts
from bot.leaflet import leaflets
from bot.policy import Policy


def current(policy: Policy, at: int, *, person: str = "") -> Charter:
    """Return what everybody may do, or one person. at: microseconds since 1970, the moment."""
    now = datetime.fromtimestamp(at / 1_000_000, UTC)
    monday = now.date() - timedelta(days=now.weekday())
    return replace(_asked(policy, monday, person), freezes=frosts(policy, now))


@lru_cache(maxsize=64)
def _asked(policy: Policy, monday: date, person: str) -> Charter:
    week = datetime(monday.year, monday.month, monday.day, tzinfo=UTC)
    return charter(policy, leaflets(), now=week, person=person)
