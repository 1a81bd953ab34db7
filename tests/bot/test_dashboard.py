"""The Grafana dashboard draws every metric, those of all features too, and no other."""

import json
import re
from contextlib import closing
from pathlib import Path

from bot.db.tables import delivery
from tests.bot.api.conftest import create_api_harness
from tests.bot.api.test_metrics import LAMP, open_prometheus, read_metrics
from tests.bot.harness import Harness
from tests.toy import BreakSwitch

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def test_grafana_dashboard_uses_every_metric_and_no_unknown_one(harness: Harness):
    api_harness = create_api_harness(harness)
    # Metrics count what was written since they are read.
    prometheus = open_prometheus(api_harness, "metrics")
    harness.approve(harness.request(LAMP))
    harness.request(BreakSwitch(host="lb2", name="lamp"))
    with harness.database.transaction() as tx:
        row = {"subscription": "wiki", "seq": 1, "run": 1, "kind": "requested", "occurred_at": 0}
        tx.sql.execute(delivery.insert().values(**row, attempts=0, next_attempt_at=0, error=""))
    with closing(prometheus):
        samples = read_metrics(prometheus)
    known = {name.partition(" ")[0] for name in samples}
    drawn = _list_dashboard_metrics(json.loads(DASHBOARD.read_text()))
    assert drawn
    assert drawn - known == set()
    # And it leaves nothing out but what histograms add.
    left_out = {
        name for name in known - drawn if not name.endswith(("_created", "_count", "_sum"))
    }
    assert left_out == set()


def test_unknown_metric_in_a_dashboard_query_is_detected():
    assert _list_dashboard_metrics({"expr": "sum(rate(keyturn_nope_total[5m]))"}) == {
        "keyturn_nope_total"
    }


def _list_dashboard_metrics(dashboard: object) -> set[str]:
    text = json.dumps(dashboard)
    queries = re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', text)
    return {name for query in queries for name in re.findall(r"\bkeyturn_\w+", query)}
