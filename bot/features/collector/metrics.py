"""The metric of the collector."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from bot.audit import change_log
from bot.db.database import Transaction
from bot.features.collector.rows import get_cursor
from bot.features.collector.status import is_configured


def collect_entries_behind(tx: Transaction) -> Iterator[Metric]:
    """Yield the gauge of entries that the collector lacks."""
    if is_configured(tx):
        yield GaugeMetricFamily(
            "keyturn_collector_entries_behind",
            "Entries of the change log that the collector has not accepted.",
            value=change_log.get_head(tx)[0] - get_cursor(tx).seq,
        )
