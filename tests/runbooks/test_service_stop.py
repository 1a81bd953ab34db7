from dataclasses import replace

import pytest

from connectors.command import Shell
from runbooks import Leg, NoUndo, Refused
from runbooks.service_stop import StopService
from tests.connectors.test_systemd import recorded

STOP = StopService.model_validate({"host": "web1", "service": "web"})
RUNNING = recorded("running")
ALONE = replace(RUNNING, dependents=())


def test_service_stop_stops_a_running_service_and_undo_starts_it():
    (step,) = STOP.plan(ALONE).steps
    assert isinstance(step.do, Shell)
    assert isinstance(step.undo, Shell)
    assert step.do.words[4:6] == ("stop", "web.service")
    assert step.undo.words[4:6] == ("start", "web.service")
    assert STOP.takes_down() == [Leg("web1", "web")]


def test_service_stop_has_no_undo_when_dependent_units_stop_too():
    plan = STOP.plan(RUNNING)
    assert isinstance(plan.steps[0].undo, NoUndo)
    assert "worker.service, part.service" in plan.steps[0].undo.reason
    assert "Stopped with it if running: worker.service, part.service." in plan.notes


@pytest.mark.parametrize("name", ["stopped", "failed"])
def test_service_stop_of_a_stopped_service_plans_no_steps(name: str):
    assert not STOP.plan(recorded(name)).steps


def test_service_in_a_restart_loop_is_stopped():
    assert STOP.plan(replace(ALONE, active_state="activating", sub_state="auto-restart")).steps


def test_service_stop_notes_what_starts_the_service_again():
    notes = STOP.plan(replace(ALONE, triggers=("web.socket",), starts_at_boot=True)).notes
    assert "These can start it again: web.socket." in notes
    assert "It starts again at the next boot." in notes


@pytest.mark.parametrize("dependents", [(), ("sshd.service",)])
def test_service_stop_refuses_services_that_access_to_the_host_depends_on(
    dependents: tuple[str, ...],
):
    service = replace(RUNNING, name="web.service" if dependents else "ssh.service")
    with pytest.raises(Refused, match="access to this host depends on it"):
        STOP.plan(replace(service, dependents=dependents))


def test_service_stop_refuses_a_service_that_is_stopping():
    with pytest.raises(Refused, match="is stopping already"):
        STOP.plan(replace(ALONE, active_state="deactivating", sub_state="stop"))
