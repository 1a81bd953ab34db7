"""Every table there is, whichever module describes it."""

from bot.store import heard, leases, lookups, outside, programs, tables

# Each module adds its own to the same.
metadata = tables.metadata
for module in (heard, leases, lookups, outside, programs):
    assert module.metadata is metadata  # noqa: S101 - whoever sees this sees them all
