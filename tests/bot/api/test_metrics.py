"""Prometheus metrics, and their token."""

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Route

from bot.api.deps import ApiParts
from bot.api.metrics import Gauges, build_metrics_endpoint
from bot.db.database import StoreUnavailable
from bot.integrations.witnesses import WitnessState
from tests.bot.api.conftest import ApiHarness
from tests.bot.web.sample_runs import add_sample_runs
from tests.toy import BreakSwitch, SetSwitch

LAMP = SetSwitch(host="lb1", name="lamp", value="on")


def open_prometheus(api_harness: ApiHarness, *scopes: str) -> TestClient:
    """Return one with a token for these scopes, or without any."""
    parts: ApiParts = api_harness.api.state.parts
    gauges = Gauges(
        *(lambda: 3, lambda: {"1": 7}, lambda: 5, lambda: {"there was no room": 2}, lambda: 2),
        witness_states=lambda: [WitnessState("w1", 3, "ok"), WitnessState("w2", 3, "away")],
    )
    app = Starlette(routes=[Route("/metrics", build_metrics_endpoint(parts, gauges))])
    # As a proxy on this machine passes requests on with its default headers.
    client = TestClient(app, base_url="http://127.0.0.1:8080", client=("127.0.0.1", 5000))
    if scopes:
        client.headers["Authorization"] = f"Bearer {api_harness.token('olga', *scopes)}"
    api_harness.programs.append(client)
    return client


def read_metrics(prometheus: TestClient) -> dict[str, float]:
    """Return each sample by its name and labels: `keyturn_runs{state=pending,runbook=…}`."""
    answer = prometheus.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {
        " ".join([one.name, *(f"{name}={value}" for name, value in sorted(one.labels.items()))]): (
            one.value
        )
        for family in families
        for one in family.samples
    }


def test_metrics_count_runs_decisions_and_waits_from_the_change_log(api_harness: ApiHarness):
    prometheus, harness = open_prometheus(api_harness, "metrics"), api_harness.harness
    harness.approve(harness.request(LAMP))
    waiting = harness.request(BreakSwitch(host="lb2", name="lamp"), person="adam")
    metrics = read_metrics(prometheus)
    assert metrics["keyturn_runs_ended_total runbook=toy set state=succeeded"] == 1
    assert metrics["keyturn_decisions_total answer=yes runbook=toy set"] == 1
    assert metrics["keyturn_waiting_seconds_count runbook=toy set"] == 1
    assert metrics["keyturn_run_seconds_count runbook=toy set"] == 1
    assert metrics["keyturn_runs runbook=toy break state=pending"] == 1
    assert metrics["keyturn_oldest_pending_seconds"] >= 0
    assert (metrics["keyturn_ssh_connections"], metrics["keyturn_queue_depth"]) == (3, 0)
    assert metrics["keyturn_ssh_connections_closed_total"] == 2
    assert metrics["keyturn_log_unwitnessed_entries witness=1"] == 7
    assert metrics["keyturn_witness_up witness=w1"] == 1
    assert metrics["keyturn_witness_up witness=w2"] == 0
    harness.service.deny_run(waiting.id, person="olga", reason="not today")
    again = read_metrics(prometheus)
    assert again["keyturn_decisions_total answer=no runbook=toy break"] == 1
    assert again["keyturn_runs_ended_total runbook=toy set state=succeeded"] == 1
    assert "keyturn_runs runbook=toy break state=pending" not in again


def test_metrics_count_unknown_queued_and_stalled_runs(api_harness: ApiHarness):
    prometheus = open_prometheus(api_harness, "metrics")
    add_sample_runs(api_harness.database)
    metrics = read_metrics(prometheus)
    assert metrics["keyturn_unknown_runs"] == 1
    assert metrics["keyturn_queue_depth"] == 2
    assert metrics["keyturn_stalled_runs"] == 0
    assert metrics["keyturn_policy_broken"] == metrics["keyturn_log_broken"] == 0
    assert metrics["keyturn_database_up"] == 1


def test_metrics_count_runs_without_a_heartbeat_as_stalled(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    from bot.db import stats

    add_sample_runs(api_harness.database)
    monkeypatch.setattr(stats, "STALLED_SECONDS", -60)
    assert read_metrics(open_prometheus(api_harness, "metrics"))["keyturn_stalled_runs"] == 2


def test_metrics_report_a_broken_policy_and_a_lost_database(
    api_harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
):
    from bot.audit import change_log

    prometheus = open_prometheus(api_harness, "metrics")
    (api_harness.policy / "policy.cedar").write_text("permit (")
    metrics = read_metrics(prometheus)
    assert metrics["keyturn_policy_broken"] == 1
    assert "keyturn_queue_depth" not in metrics

    def gone(_tx: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(change_log, "get_head", gone)
    metrics = read_metrics(prometheus)
    assert metrics["keyturn_database_up"] == 0
    assert "keyturn_queue_depth" not in metrics


def test_metrics_need_a_token_on_localhost_too(api_harness: ApiHarness):
    refused = open_prometheus(api_harness).get("/metrics")
    assert refused.status_code == 401
    assert "keyturn_" not in refused.text


@pytest.mark.parametrize(("scope", "status"), [("read", 403), ("approve", 403), ("metrics", 200)])
def test_metrics_need_a_token_with_the_scope_metrics(
    api_harness: ApiHarness, scope: str, status: int
):
    assert open_prometheus(api_harness, scope).get("/metrics").status_code == status


def test_metrics_count_http_connections(api_harness: ApiHarness):
    metrics = read_metrics(open_prometheus(api_harness, "metrics"))
    assert metrics["keyturn_http_connections"] == 5
    closed = "keyturn_http_connections_closed_total reason=there was no room"
    assert metrics[closed] == 2
