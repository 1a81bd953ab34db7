"""What Prometheus is told, whom it is told to, and the dashboard that draws it."""

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Route

from bot.api import metrics
from bot.api.metrics import Gauges, endpoint
from bot.api.parts import ApiParts
from bot.store.database import StoreUnavailable
from bot.store.outside import delivery
from tests.bot.api.conftest import Desk
from tests.bot.web.exhibits import gallery
from tests.toy import BreakSwitch, SetSwitch

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana.json"
LAMP = SetSwitch(host="lb1", name="lamp", value="on")


def _prometheus(desk: Desk, *, client: str = "127.0.0.1", host: str = "localhost") -> TestClient:
    parts: ApiParts = desk.api.state.parts
    gauges = Gauges(lambda: 3, lambda: {"1": 7})
    app = Starlette(routes=[Route("/metrics", endpoint(parts, gauges))])
    found = TestClient(app, base_url=f"http://{host}", client=(client, 5000))
    desk.programs.append(found)
    return found


def _figures(prometheus: TestClient) -> dict[str, float]:
    """Return each sample by its name and labels: `keyturn_runs{state=waiting,runbook=…}`."""
    answer = prometheus.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {
        " ".join([one.name, *(f"{name}={said}" for name, said in sorted(one.labels.items()))]): (
            one.value
        )
        for family in families
        for one in family.samples
    }


def test_runs_votes_and_waits_are_counted_from_the_log(desk: Desk):
    prometheus, office = _prometheus(desk), desk.office
    office.approve(office.ask(LAMP))
    waiting = office.ask(BreakSwitch(host="lb2", name="lamp"), person="adam")
    found = _figures(prometheus)
    assert found["keyturn_runs_ended_total runbook=toy set state=succeeded"] == 1
    assert found["keyturn_votes_total answer=yes runbook=toy set"] == 1
    assert found["keyturn_waiting_seconds_count runbook=toy set"] == 1
    assert found["keyturn_run_seconds_count runbook=toy set"] == 1
    assert found["keyturn_runs runbook=toy break state=waiting"] == 1
    assert found["keyturn_oldest_waiting_seconds"] >= 0
    assert (found["keyturn_ssh_sessions"], found["keyturn_queue_depth"]) == (3, 0)
    assert found["keyturn_log_unwitnessed_entries witness=1"] == 7
    office.workflow.deny(waiting.id, person="olga")
    again = _figures(prometheus)
    assert again["keyturn_votes_total answer=no runbook=toy break"] == 1
    assert again["keyturn_runs_ended_total runbook=toy set state=succeeded"] == 1
    assert "keyturn_runs runbook=toy break state=waiting" not in again


def test_what_stands_open_is_counted(desk: Desk):
    prometheus = _prometheus(desk)
    gallery(desk.database)
    found = _figures(prometheus)
    assert found["keyturn_unknown_runs"] == 1
    assert found["keyturn_queue_depth"] == 2
    assert found["keyturn_stalled_runs"] == 0
    assert found["keyturn_policy_broken"] == found["keyturn_log_broken"] == 0
    assert found["keyturn_database_up"] == 1


def test_what_has_given_no_sign_for_long_has_stalled(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    from bot.store import figures

    gallery(desk.database)
    monkeypatch.setattr(figures, "STALLED_SECONDS", -60)
    assert _figures(_prometheus(desk))["keyturn_stalled_runs"] == 2


def test_a_broken_policy_and_a_lost_database_show(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    from bot.store import changelog

    prometheus = _prometheus(desk)
    (desk.policy / "policy.cedar").write_text("permit (")
    assert _figures(prometheus)["keyturn_policy_broken"] == 1

    def gone(_tx: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(changelog, "head", gone)
    found = _figures(prometheus)
    assert found["keyturn_database_up"] == 0
    assert "keyturn_queue_depth" not in found


@pytest.mark.parametrize(
    ("client", "host", "headers"),
    [
        ("192.0.2.7", "localhost", {}),
        ("127.0.0.1", "keyturn.example.com", {}),
        ("127.0.0.1", "localhost", {"X-Forwarded-For": "192.0.2.7"}),
        ("127.0.0.1", "localhost", {"Forwarded": "for=192.0.2.7"}),
        ("127.0.0.1", "localhost", {"Origin": "http://evil.example"}),
        ("testclient", "localhost", {}),
    ],
)
def test_strangers_are_told_nothing(
    desk: Desk, client: str, host: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    prometheus = _prometheus(desk, client=client, host=host)
    refused = prometheus.get("/metrics", headers=headers)
    assert refused.status_code == 401
    assert "keyturn_" not in refused.text
    for scope, status in (("read", 403), ("approve", 403), ("metrics", 200)):
        bearer = {"Authorization": f"Bearer {desk.token('olga', scope)}"}
        assert prometheus.get("/metrics", headers=headers | bearer).status_code == status

    def always(_request: object) -> bool:
        return True

    monkeypatch.setattr(metrics, "from_this_machine", always)
    assert prometheus.get("/metrics", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080"])
def test_this_machine_is_told(desk: Desk, host: str):
    assert _prometheus(desk, host=host).get("/metrics").status_code == 200


def test_the_dashboard_draws_only_what_there_is(desk: Desk):
    prometheus = _prometheus(desk)
    desk.office.approve(desk.office.ask(LAMP))
    desk.office.ask(BreakSwitch(host="lb2", name="lamp"))
    with desk.database.transaction() as tx:
        row = {"subscription": "wiki", "seq": 1, "run": 1, "kind": "asked", "at": 0}
        tx.sql.execute(delivery.insert().values(**row, tries=0, not_before=0, trouble=""))
    known = {name.partition(" ")[0] for name in _figures(prometheus)}
    drawn = _drawn(json.loads(DASHBOARD.read_text()))
    assert drawn
    assert drawn - known == set()
    # And it leaves nothing out but what histograms add.
    left_out = {
        name for name in known - drawn if not name.endswith(("_created", "_count", "_sum"))
    }
    assert left_out == set()


def test_a_query_for_what_there_is_not_is_found():
    assert _drawn({"expr": "sum(rate(keyturn_nope_total[5m]))"}) == {"keyturn_nope_total"}


def _drawn(dashboard: object) -> set[str]:
    text = json.dumps(dashboard)
    queries = re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', text)
    return {name for query in queries for name in re.findall(r"\bkeyturn_\w+", query)}
