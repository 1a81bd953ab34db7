from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from connectors.command import Shell
from connectors.systemd import ConfigurationTest, Service
from runbooks import Clock, NoUndo, Refused
from runbooks._service import ServiceState
from runbooks.service_reload import ReloadService
from tests.connectors.test_systemd import recorded

SINCE = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW = Clock(SINCE + timedelta(minutes=5), SINCE + timedelta(minutes=5))
RELOAD = ReloadService.model_validate(
    {"host": "web1", "service": "proxy", "since": "2026-11-21T12:00Z"}
)
RUNNING = recorded("reloadable")


def test_service_reload_plans_one_reload_until_the_service_has_reloaded():
    plan = RELOAD.plan(ServiceState(RUNNING, NOW))
    (step,) = plan.steps
    assert isinstance(step.do, Shell)
    assert step.do.words[4:6] == ("reload", "proxy.service")
    assert isinstance(step.undo, NoUndo)
    reloaded = replace(RUNNING, changed_at=SINCE + timedelta(minutes=1))
    assert not RELOAD.plan(ServiceState(reloaded, NOW)).steps


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        (recorded("running"), "cannot reload its configuration: request `service restart`"),
        (replace(RUNNING, changed_at=None), "does not tell when a service was reloaded"),
        (replace(RUNNING, active_state="failed"), "only a running service can be reloaded"),
        (replace(RUNNING, name="ssh.service"), "access to this host depends on it"),
        (recorded("masked"), "is masked and cannot be reloaded"),
    ],
)
def test_service_that_cannot_reload_is_refused(service: Service, reason: str):
    with pytest.raises(Refused, match=reason):
        RELOAD.plan(ServiceState(service, NOW))


def test_service_reload_refuses_a_configuration_with_errors():
    broken = ConfigurationTest(error="unknown keyword")
    with pytest.raises(Refused, match="so it would keep the old one or fail"):
        RELOAD.plan(ServiceState(RUNNING, NOW, broken))
    tested = RELOAD.plan(ServiceState(RUNNING, NOW, ConfigurationTest()))
    assert any("repeated right before the reload" in note for note in tested.notes)
