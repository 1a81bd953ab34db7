"""People on duty, for tests: a calendar of the edge, and its shifts."""

from pathlib import Path

from bot.auth import oncall
from bot.db.database import Database
from bot.model.shift import Shift
from bot.policy import PolicySource
from bot.queries.oncall import PolicyWithDuties
from tests.bot.clock import MINUTE

HOUR = 60 * MINUTE


def add_calendar(directory: Path) -> None:
    """Let a policy have a calendar of the edge, and give each person an address."""
    people = directory / "people.yaml"
    text = people.read_text()
    for name in ("dora", "olga", "adam", "stan"):
        text = text.replace(f"  {name}: {{", f"  {name}: {{email: {name}@example.com, ")
    people.write_text(text)
    (directory / "oncall.yaml").write_text("oncall:\n  edge: {file: edge.ics, areas: [edge]}\n")


def set_duty(
    database: Database, policies: PolicySource, *people: str, minutes: int = 24 * 60
) -> None:
    """Let these people be on duty from an hour ago, for so many minutes from now."""
    calendar = policies.get_policy().calendars["edge"]
    with database.transaction() as tx:
        oncall.claim_fetch(tx, calendar, seconds=0)
        addresses = tuple(f"{name}@example.com" for name in people)
        shift = Shift(tx.now - HOUR, tx.now + minutes * MINUTE, addresses, "Edge")
        oncall.store_shifts(tx, calendar, [shift])


def with_duties(policies: PolicySource, database: Database) -> PolicyWithDuties:
    """Return the policy with who is on duty, looked up each time."""
    # Each look at this clock is three seconds later, so nothing is cached.
    ticks = iter(range(0, 10**9, 3)).__next__
    return PolicyWithDuties(policies, database, clock=ticks)
