from dataclasses import replace

import pytest

from connectors.command import Shell
from runbooks import Leg, NoUndo, Refused
from runbooks.service_stop import StopService
from tests.connectors.test_systemd import recorded

STOP = StopService.model_validate({"host": "web1", "service": "web"})
RUNNING = recorded("running")
ALONE = replace(RUNNING, dependents=())


def test_a_running_service_is_stopped_and_the_undo_starts_it():
    (step,) = STOP.plan(ALONE).steps
    assert isinstance(step.do, Shell)
    assert isinstance(step.undo, Shell)
    assert step.do.words[4:6] == ("stop", "web.service")
    assert step.undo.words[4:6] == ("start", "web.service")
    assert STOP.takes_down() == [Leg("web1", "web")]


def test_one_with_units_that_stop_with_it_cannot_be_undone():
    plan = STOP.plan(RUNNING)
    assert isinstance(plan.steps[0].undo, NoUndo)
    assert "worker.service, part.service" in plan.steps[0].undo.reason
    assert "Stopped with it if running: worker.service, part.service." in plan.notes


@pytest.mark.parametrize("name", ["stopped", "failed"])
def test_one_that_does_not_run_needs_nothing(name: str):
    assert not STOP.plan(recorded(name)).steps


def test_one_that_systemd_keeps_restarting_is_stopped():
    assert STOP.plan(replace(ALONE, active_state="activating", sub_state="auto-restart")).steps


def test_the_plan_says_what_starts_it_again():
    notes = STOP.plan(replace(ALONE, triggers=("web.socket",), starts_at_boot=True)).notes
    assert "These can start it again: web.socket." in notes
    assert "It starts again at the next boot." in notes


@pytest.mark.parametrize("dependents", [(), ("sshd.service",)])
def test_the_way_into_the_host_is_never_stopped(dependents: tuple[str, ...]):
    service = replace(RUNNING, name="web.service" if dependents else "ssh.service")
    with pytest.raises(Refused, match="access to this host depends on it"):
        STOP.plan(replace(service, dependents=dependents))


def test_one_that_is_stopping_is_waited_for():
    with pytest.raises(Refused, match="is stopping already"):
        STOP.plan(replace(ALONE, active_state="deactivating", sub_state="stop"))
