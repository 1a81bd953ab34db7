"""The change log pushed to a collector, such as a SIEM: every entry, in order, at least once.

`rows.py` keeps how far it has received the log, and `sender.py` sends what follows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from bot.api.deps import CollectMetrics
    from bot.health import CheckWithPolicy


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.collector.status import check_collector

    return [check_collector]


def _load_metrics() -> "Sequence[CollectMetrics]":
    from bot.features.collector.metrics import collect_entries_behind

    return [collect_entries_behind]


def _build_server_part(context: ServerContext) -> ServerPart:
    if not context.settings.collector:
        return ServerPart()
    from bot.features.collector.sender import build_collector_sender

    return ServerPart(tasks=[build_collector_sender(context).run])


FEATURE = Feature(
    "collector",
    load_checks=_load_checks,
    load_metrics=_load_metrics,
    build_server_part=_build_server_part,
)
