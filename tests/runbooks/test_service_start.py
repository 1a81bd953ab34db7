from dataclasses import replace
from datetime import UTC, datetime

import pytest

from connectors.command import Shell
from connectors.systemd import ConfigurationTest
from runbooks import Clock, Refused
from runbooks._service import ServiceState
from runbooks.service_start import StartService
from tests.connectors.test_systemd import recorded

NOW = Clock(datetime(2026, 11, 21, 12, tzinfo=UTC), datetime(2026, 11, 21, 12, tzinfo=UTC))
START = StartService.model_validate({"host": "web1", "service": "stopped"})
STOPPED = recorded("stopped")


def test_service_start_starts_a_stopped_service_and_undo_stops_it():
    (step,) = START.plan(ServiceState(STOPPED, NOW)).steps
    assert isinstance(step.do, Shell)
    assert isinstance(step.undo, Shell)
    assert step.do.words[4:6] == ("start", "stopped.service")
    assert step.undo.words[4:6] == ("stop", "stopped.service")
    assert (step.before, step.after) == ("inactive", "active")


def test_service_start_of_a_running_service_plans_no_steps():
    assert not START.plan(ServiceState(recorded("running"), NOW)).steps


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("masked", "is masked and cannot be started"),
        ("not-found", "is not-found"),
        ("starting", "is activating"),
        ("ssh-by-its-alias", "access to this host depends on it"),
    ],
)
def test_service_start_refuses_masked_missing_and_changing_services(name: str, reason: str):
    with pytest.raises(Refused, match=reason):
        START.plan(ServiceState(recorded(name), NOW))


def test_service_start_refuses_a_conflict_with_access_to_the_host():
    conflicting = replace(STOPPED, conflicts=("apache2.service", "nftables.service"))
    with pytest.raises(Refused, match=r"the start would stop nftables\.service"):
        START.plan(ServiceState(conflicting, NOW))


def test_service_start_notes_conflicts_and_start_at_boot():
    service = replace(STOPPED, conflicts=("apache2.service",), starts_at_boot=False)
    notes = START.plan(ServiceState(service, NOW)).notes
    assert "Stopped by its start if running: apache2.service." in notes
    assert "It does not start at the next boot: that needs `systemctl enable`." in notes


def test_service_start_refuses_a_configuration_with_errors():
    broken = ConfigurationTest(error="unknown keyword")
    with pytest.raises(Refused, match="so it would not start: correct it first"):
        START.plan(ServiceState(STOPPED, NOW, broken))
