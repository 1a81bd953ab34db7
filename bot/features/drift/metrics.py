"""How many values are watched, by state."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from bot.db.database import Transaction
from bot.features.drift import rows


def collect_watched_values(tx: Transaction) -> Iterator[Metric]:
    """Yield the gauge of watched values."""
    watched = GaugeMetricFamily(
        "keyturn_drift_keys", "Values that Keyturn set and watches.", labels=["state"]
    )
    for state, count in rows.count_by_state(tx).items():
        watched.add_metric([state], count)
    yield watched
