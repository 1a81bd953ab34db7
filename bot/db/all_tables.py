"""Every table there is, whichever module describes it."""

from bot.db import inbound_events, leases, live_output, tables

# Each module adds its own to the same.
metadata = tables.metadata
for module in (live_output, leases, tables, inbound_events, tables):
    assert module.metadata is metadata  # noqa: S101 - whoever sees this sees them all
