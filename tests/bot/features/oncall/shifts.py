"""Shifts of people, without a calendar that has to be read."""

from bot.features.oncall import rows
from bot.features.oncall.shift import Shift
from bot.model.times import MINUTE
from tests.bot.harness import Harness


def set_shifts(harness: Harness, *shifts: tuple[int, int, str]) -> None:
    """Let people be on duty. shifts: from and until in minutes from now, and the person."""
    calendar = harness.policies.get_policy().calendars["edge"]
    with harness.database.transaction() as tx:
        rows.claim_fetch(tx, calendar, seconds=0)
        built = [
            Shift(tx.now + start * MINUTE, tx.now + end * MINUTE, (f"{who}@example.com",), "Edge")
            for start, end, who in shifts
        ]
        rows.store_shifts(tx, calendar, built)
