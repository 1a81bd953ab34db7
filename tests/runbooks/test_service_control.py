from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_TIMES
from connectors import clock, systemd
from connectors.command import Shell
from connectors.systemd import ConfigurationTest, Service
from runbooks import Clock, Leg, NoUndo, Refused
from runbooks.service_control import (
    ReloadService,
    RestartService,
    ServiceState,
    StartService,
    StopService,
)
from tests.connectors.test_systemd import ANSWERS, recorded
from tests.plans import list_work
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.scripted_fleet import ScriptedFleet

SINCE = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW = Clock(SINCE + timedelta(minutes=5), SINCE + timedelta(minutes=5))
RESTART = RestartService.model_validate(
    {"host": "web1", "service": "web", "since": "2026-11-21T12:00Z"}
)
RUNNING = recorded("running")


def test_service_that_started_before_the_request_is_restarted():
    plan = RESTART.plan(ServiceState(RUNNING, NOW))
    (step,) = plan.steps
    assert isinstance(step.do, Shell)
    assert step.do.words[3:6] == ("keyturn", "restart", "web.service")
    assert isinstance(step.undo, NoUndo)
    assert step.before == "active, started: 2026-11-21 11:47:09 UTC"
    assert any("connections are closed" in note for note in plan.notes)
    assert "Restarted with it if running: worker.service, part.service." in plan.notes


@pytest.mark.parametrize("seconds", [0, 1, 300])
def test_service_that_started_after_the_request_plans_no_steps(seconds: int):
    started = replace(RUNNING, started_at=SINCE + timedelta(seconds=seconds))
    plan = RESTART.plan(ServiceState(started, NOW))
    assert not plan.steps
    assert "after the request" in plan.current_state


def test_service_that_started_after_the_request_and_failed_is_restarted():
    failed = replace(recorded("failed"), started_at=SINCE + timedelta(seconds=1))
    assert RESTART.plan(ServiceState(failed, NOW)).steps


def test_service_restart_plan_is_stale_when_the_service_was_restarted():
    other = replace(RUNNING, started_at=SINCE - timedelta(seconds=1))
    plan = RESTART.plan(ServiceState(RUNNING, NOW))
    assert list_work(RESTART.plan(ServiceState(other, NOW))) != list_work(plan)
    later = ServiceState(
        replace(RUNNING, memory_bytes=1),
        Clock(NOW.host + timedelta(hours=1), NOW.keyturn + timedelta(hours=1)),
    )
    assert list_work(RESTART.plan(later)) == list_work(plan)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("masked", "is masked"),
        ("not-found", "is not-found"),
        ("stopped", "is stopped, and a restart would start it"),
        ("starting", "is activating"),
        ("ssh-by-its-alias", "access to this host depends on it"),
    ],
)
def test_service_restart_refuses_masked_missing_and_stopped_services(name: str, reason: str):
    with pytest.raises(Refused, match=reason):
        RESTART.plan(ServiceState(recorded(name), NOW))


def test_service_restart_refuses_a_service_without_manual_start():
    fixed = replace(RUNNING, is_manual=False)
    with pytest.raises(Refused, match="people cannot start or stop it"):
        RESTART.plan(ServiceState(fixed, NOW))


@pytest.mark.parametrize(
    "name",
    [
        "sshd.service",
        "ssh@3-10.0.0.1:22-10.0.0.2:5000.service",
        "systemd-networkd.service",
        "NetworkManager.service",
        "networking.service",
        "nftables.service",
        "wg-quick@wg0.service",
        "openvpn-client@harness.service",
        "dbus.service",
    ],
)
def test_service_restart_refuses_services_that_access_to_the_host_depends_on(name: str):
    with pytest.raises(Refused, match="access to this host depends on it"):
        RESTART.plan(ServiceState(replace(RUNNING, name=name), NOW))
    with pytest.raises(Refused, match="access to this host depends on it"):
        RESTART.plan(ServiceState(replace(RUNNING, dependents=("a.service", name)), NOW))


@pytest.mark.parametrize("lag", [-3600, -0.4, 0.4, 0.9, 1.5, 120])
def test_service_restart_is_recognised_when_the_host_clock_is_wrong(lag: float):
    behind = timedelta(seconds=lag)
    clock = Clock(NOW.keyturn - behind, NOW.keyturn)
    before = (SINCE - timedelta(seconds=2) - behind).replace(microsecond=0)
    assert RESTART.plan(ServiceState(replace(RUNNING, started_at=before), clock)).steps
    # Requested and restarted in the same moment; systemd tells it by the second.
    at_once = (SINCE + timedelta(seconds=0.1) - behind).replace(microsecond=0)
    assert not RESTART.plan(ServiceState(replace(RUNNING, started_at=at_once), clock)).steps


def test_service_restart_with_a_future_time_is_refused():
    with pytest.raises(Refused, match="in the future"):
        RESTART.plan(ServiceState(RUNNING, Clock(SINCE, SINCE - timedelta(minutes=1))))


def test_service_restart_refuses_a_configuration_with_errors():
    broken = ConfigurationTest(error="[ALERT] haproxy.cfg:12 : unknown keyword 'blah'")
    with pytest.raises(Refused, match="unknown keyword 'blah'"):
        RESTART.plan(ServiceState(RUNNING, NOW, broken))
    # What came up since is done, whatever became of its configuration.
    since = replace(RUNNING, started_at=SINCE + timedelta(seconds=1))
    assert not RESTART.plan(ServiceState(since, NOW, broken)).steps


def test_service_restart_notes_whether_the_configuration_was_tested():
    note = "Its configuration test passes, and is repeated right before the restart."
    assert note in RESTART.plan(ServiceState(RUNNING, NOW, ConfigurationTest())).notes
    none = ConfigurationTest(untested_reason="the program haproxy is missing")
    notes = RESTART.plan(ServiceState(RUNNING, NOW, none)).notes
    assert "Its configuration was not tested: the program haproxy is missing." in notes


def test_service_in_a_restart_loop_is_restarted():
    looping = replace(RUNNING, active_state="activating", sub_state="auto-restart")
    assert RESTART.plan(ServiceState(looping, NOW)).steps


def test_service_restart_without_since_stores_the_time_of_the_request():
    before = datetime.now(UTC).replace(microsecond=0)
    restart = RestartService.model_validate({"host": "web1", "service": "web"})
    assert before <= restart.since <= datetime.now(UTC)
    # As the engine stores it and takes it out again.
    assert RestartService.model_validate(restart.model_dump(mode="json")) == restart


def test_service_restart_reads_since_without_a_time_zone_as_utc():
    values = {"host": "web1", "service": "web"}
    for typed in ("2026-11-21T12:00", "2026-11-21 13:00+01:00", "2026-11-21T12:00:00Z"):
        assert RestartService.model_validate(values | {"since": typed}).since == SINCE


def test_service_restart_reads_service_and_clock():
    answer = (ANSWERS / "running.txt").read_text()
    fleet = ScriptedFleet(
        {
            ("web1", systemd.query_service("web").command): answer,
            ("web1", clock.query_clock().command): "1795262700\n",
        }
    )
    reading = RESTART.read(fleet.run_query)
    assert (reading.service, reading.configuration) == (RUNNING, None)
    assert reading.clock.host == NOW.host
    assert abs(datetime.now(UTC) - reading.clock.keyturn) < timedelta(minutes=1)


def test_service_restart_tests_the_configuration_of_nginx():
    answer = (ANSWERS / "running.txt").read_text().replace("web.service", "nginx.service")
    fleet = ScriptedFleet(
        {
            ("web1", systemd.query_service("nginx").command): answer,
            ("web1", clock.query_clock().command): "1795262700.250000000\n",
            (
                "web1",
                systemd.query_configuration("nginx.service").command,
            ): "fails\nnginx: [emerg] x\n",
        }
    )
    restart = RestartService.model_validate({"host": "web1", "service": "nginx"})
    assert restart.read(fleet.run_query).configuration == ConfigurationTest(
        error="nginx: [emerg] x"
    )


@pytest.mark.parametrize("service", HOSTILE_NAMES)
def test_invalid_service_name_is_refused_before_any_query(service: object):
    with pytest.raises(ValidationError):
        RestartService.model_validate({"host": "web1", "service": service})


@pytest.mark.parametrize("since", HOSTILE_TIMES)
def test_invalid_time_is_refused_before_any_query(since: object):
    with pytest.raises(ValidationError):
        RestartService.model_validate({"host": "web1", "service": "web", "since": since})


RELOAD = ReloadService.model_validate(
    {"host": "web1", "service": "proxy", "since": "2026-11-21T12:00Z"}
)
RELOADABLE = recorded("reloadable")


def test_service_reload_plans_one_reload_until_the_service_has_reloaded():
    plan = RELOAD.plan(ServiceState(RELOADABLE, NOW))
    (step,) = plan.steps
    assert isinstance(step.do, Shell)
    assert step.do.words[4:6] == ("reload", "proxy.service")
    assert isinstance(step.undo, NoUndo)
    reloaded = replace(RELOADABLE, changed_at=SINCE + timedelta(minutes=1))
    assert not RELOAD.plan(ServiceState(reloaded, NOW)).steps


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        (recorded("running"), "cannot reload its configuration: request `service restart`"),
        (replace(RELOADABLE, changed_at=None), "does not tell when a service was reloaded"),
        (replace(RELOADABLE, active_state="failed"), "only a running service can be reloaded"),
        (replace(RELOADABLE, name="ssh.service"), "access to this host depends on it"),
        (recorded("masked"), "is masked and cannot be reloaded"),
    ],
)
def test_service_that_cannot_reload_is_refused(service: Service, reason: str):
    with pytest.raises(Refused, match=reason):
        RELOAD.plan(ServiceState(service, NOW))


def test_service_reload_refuses_a_configuration_with_errors():
    broken = ConfigurationTest(error="unknown keyword")
    with pytest.raises(Refused, match="so it would keep the old one or fail"):
        RELOAD.plan(ServiceState(RELOADABLE, NOW, broken))
    tested = RELOAD.plan(ServiceState(RELOADABLE, NOW, ConfigurationTest()))
    assert any("repeated right before the reload" in note for note in tested.notes)


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


STOP = StopService.model_validate({"host": "web1", "service": "web"})
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
