"""Shifts in the calendar of the edge, for tests."""

from bot.db.database import Database
from bot.features.oncall import rows
from bot.features.oncall.duties import FACTS
from bot.features.oncall.shift import Shift
from bot.policy import PolicyDirectory, PolicySource
from tests.bot.clock import MINUTE
from tests.bot.duties import with_facts

HOUR = 60 * MINUTE


def set_duty(
    database: Database, policies: PolicySource, *people: str, minutes: int = 24 * 60
) -> None:
    """Let these people be on duty from an hour ago, for so many minutes from now."""
    calendar = policies.get_policy().calendars["edge"]
    with database.transaction() as tx:
        rows.claim_fetch(tx, calendar, seconds=0)
        addresses = tuple(f"{name}@example.com" for name in people)
        shift = Shift(tx.now - HOUR, tx.now + minutes * MINUTE, addresses, "Edge")
        rows.store_shifts(tx, calendar, [shift])


def with_duties(policies: PolicyDirectory, database: Database) -> PolicyDirectory:
    """Return the policy with who is on duty, looked up each time."""
    return with_facts(policies, database, FACTS)
