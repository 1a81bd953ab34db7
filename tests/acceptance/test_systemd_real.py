"""The service runbooks against a real systemd in namespaces of its own."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.systemd import Verb, control_service
from runbooks import Refused
from runbooks._lists import LISTS
from runbooks.service_control import ReloadService, RestartService, StartService, StopService
from tests.acceptance.direct_execution import execute_plan
from tests.playground.systemd import Systemd, explain_missing_support
from tests.runbooks.declared import load_check
from tests.scripted_fleet import build_inventory

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"systemd cannot run here: {_MISSING}"),
]

_SLEEPS = "[Service]\nExecStart=/bin/sleep 1000\n"
UNITS = {
    "web.service": f"[Unit]\nDescription=Our web server\n{_SLEEPS}",
    "worker.service": f"[Unit]\nRequires=web.service\nAfter=web.service\n{_SLEEPS}",
    "ssh.service": f"[Unit]\nDescription=OpenSSH\n{_SLEEPS}",
    "stopped.service": f"[Unit]\nDescription=Stopped\n{_SLEEPS}",
    "broken.service": "[Unit]\nDescription=Broken\n[Service]\nExecStart=/bin/false\n",
    "ended.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n",
    "off.service": "",
}


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    with Systemd(UNITS) as systemd:
        systemd.systemctl("start", "worker", "ssh")
        systemd.systemctl("start", "broken")
        deadline = time.monotonic() + 10
        while "failed" not in systemd.systemctl("is-active", "broken"):
            assert time.monotonic() < deadline
        yield systemd


@pytest.fixture
def fleet(systemd: Systemd) -> Fleet:
    return Fleet(build_inventory("web1"), systemd)


def test_services_of_a_host_are_listed_for_forms(fleet: Fleet):
    listed = set(LISTS["services"](fleet.run_query, "web1", {}))
    assert {"web", "worker", "ssh", "broken"} <= listed
    assert not {"stopped", "off"} & listed


def build_restart(service: str, since: datetime | None = None) -> RestartService:
    values = {"host": "web1", "service": service}
    return RestartService.model_validate(values | ({"since": since.isoformat()} if since else {}))


def get_start_time(fleet: Fleet, service: str) -> datetime | None:
    look = load_check("service status").model_validate({"host": "web1", "service": service})
    return look.read(fleet.run_query)[0].started_at


def get_moment_after_start(fleet: Fleet, service: str) -> datetime:
    """Return a moment after the start of a service, and so much that no rounding hides it."""
    start = get_start_time(fleet, service)
    assert start is not None
    while (now := datetime.now(UTC)) < start + timedelta(seconds=3):
        time.sleep(0.02)
    return now.replace(microsecond=0)


def test_service_restart_also_restarts_dependent_services(fleet: Fleet):
    since = get_moment_after_start(fleet, "worker")
    plan = execute_plan(fleet, build_restart("web", since))
    assert "Restarted with it if running: worker.service." in plan.notes
    for service in ("web", "worker"):
        start = get_start_time(fleet, service)
        assert start is not None
        assert start >= since


def test_service_that_fails_again_after_a_restart_is_not_verified(fleet: Fleet):
    change = build_restart("broken", get_moment_after_start(fleet, "broken"))
    (step,) = change.plan(change.read(fleet.run_query)).steps
    fleet.run_command("web1", step.do)  # systemd says that all is well
    assert change.plan(change.read(fleet.run_query)).steps


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        ("ssh", "access to this host depends on it"),
        ("stopped", "is stopped"),
        ("off", "is masked"),
        ("nothing", "is not-found"),
    ],
)
def test_service_restart_is_refused_for_ssh_stopped_masked_and_missing_units(
    fleet: Fleet, service: str, reason: str
):
    change = build_restart(service)
    with pytest.raises(Refused, match=reason):
        change.plan(change.read(fleet.run_query))


def test_service_restart_by_an_alias_of_ssh_is_refused(systemd: Systemd, fleet: Fleet):
    (systemd.units / "harmless.service").symlink_to("ssh.service")
    systemd.systemctl("daemon-reload")
    change = build_restart("harmless")
    with pytest.raises(Refused, match=r"ssh\.service would be restarted"):
        change.plan(change.read(fleet.run_query))


def test_a_service_is_stopped_and_started(systemd: Systemd, fleet: Fleet):
    values = {"host": "web1", "service": "stopped"}
    start, stop = StartService.model_validate(values), StopService.model_validate(values)
    execute_plan(fleet, start)
    assert "active" in systemd.systemctl("is-active", "stopped").splitlines()
    execute_plan(fleet, stop)
    assert "inactive" in systemd.systemctl("is-active", "stopped").splitlines()
    assert not stop.plan(stop.read(fleet.run_query)).steps


def test_a_service_is_reloaded_without_a_restart(systemd: Systemd, fleet: Fleet):
    systemd.write("loads.service", f"[Unit]\nDescription=x\n{_SLEEPS}ExecReload=/bin/true\n")
    systemd.systemctl("daemon-reload")
    systemd.systemctl("start", "loads")
    pid = systemd.systemctl("show", "-p", "MainPID", "loads")
    values = {
        "host": "web1",
        "service": "loads",
        "since": get_moment_after_start(fleet, "loads").isoformat(),
    }
    reload = ReloadService.model_validate(values)
    execute_plan(fleet, reload)
    assert not reload.plan(reload.read(fleet.run_query)).steps
    assert systemd.systemctl("show", "-p", "MainPID", "loads") == pid
    other = ReloadService.model_validate({"host": "web1", "service": "web"})
    state = other.read(fleet.run_query)
    with pytest.raises(Refused, match="cannot reload its configuration"):
        other.plan(state)


@pytest.mark.parametrize("verb", ["restart", "stop"])
def test_host_script_refuses_to_restart_or_stop_ssh(systemd: Systemd, fleet: Fleet, verb: Verb):
    with pytest.raises(CommandError, match="is a way into this host: nothing was done"):
        fleet.run_command("web1", control_service(verb, "ssh"))
    assert "active" in systemd.systemctl("is-active", "ssh").splitlines()


@pytest.mark.parametrize("service", ["ssh", "harmless"])
def test_host_script_refuses_to_restart_ssh_by_an_alias(
    systemd: Systemd, fleet: Fleet, service: str
):
    (systemd.units / "harmless.service").symlink_to("ssh.service")
    systemd.systemctl("daemon-reload")
    before = systemd.systemctl("show", "-p", "MainPID", "ssh")
    with pytest.raises(CommandError, match="is a way into this host: nothing was done"):
        fleet.run_command("web1", control_service("restart", service))
    assert systemd.systemctl("show", "-p", "MainPID", "ssh") == before


def test_host_script_refuses_to_restart_a_stopped_service(systemd: Systemd, fleet: Fleet):
    with pytest.raises(CommandError, match="is stopped: nothing was done"):
        fleet.run_command("web1", control_service("restart", "stopped"))
    assert "inactive" in systemd.systemctl("is-active", "stopped")


_WEB_SERVERS = {
    "haproxy": ("listen a\n  bind 127.0.0.1:1\n  mode tcp\n  timeout client 1s\n", "nonsense\n"),
    "nginx": ("events {}\n", "nonsense;\n"),
}


@pytest.mark.parametrize("name", _WEB_SERVERS)
def test_service_with_an_invalid_configuration_is_not_restarted(
    systemd: Systemd, tmp_path: Path, name: str
):
    good, bad = _WEB_SERVERS[name]
    configuration = tmp_path / f"{name}.cfg"
    configuration.write_text(good)
    systemd.write(f"{name}.service", f"[Unit]\nDescription=Proxy\n{_SLEEPS}")
    systemd.systemctl("daemon-reload")
    systemd.systemctl("start", name)
    entry = build_inventory("web1")["web1"].model_dump(mode="json", exclude={"name"})
    entry["settings"] = {f"{name}.config": str(configuration)}
    fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), systemd)
    change = build_restart(name, get_moment_after_start(fleet, name))
    plan = change.plan(change.read(fleet.run_query))
    assert any("configuration test passes" in note for note in plan.notes)
    before = systemd.systemctl("show", "-p", "MainPID", name)
    configuration.write_text(bad)
    with pytest.raises(Refused, match=r"has errors[\s\S]*nonsense"):
        change.plan(change.read(fleet.run_query))
    # It was broken between the plan and the step.
    with pytest.raises(CommandError, match="errors: nothing was done"):
        fleet.run_command("web1", plan.steps[0].do)
    assert systemd.systemctl("show", "-p", "MainPID", name) == before
    configuration.write_text(good)
    fleet.run_command("web1", plan.steps[0].do)
    assert systemd.systemctl("show", "-p", "MainPID", name) != before


def test_service_template_without_an_instance_is_refused(fleet: Fleet):
    with pytest.raises(CommandError, match="needs its instance"):
        build_restart("worker@").read(fleet.run_query)


def test_service_status_shows_why_a_service_failed(fleet: Fleet):
    look = load_check("service status").model_validate({"host": "web1", "service": "broken"})
    report = look.report(look.read(fleet.run_query))
    assert not report.healthy
    assert "ended with: exit-code" in report.findings[0]


def test_service_of_which_no_process_is_left_does_not_count_as_running(
    systemd: Systemd, fleet: Fleet
):
    systemd.systemctl("start", "ended")
    look = load_check("service status").model_validate({"host": "web1", "service": "ended"})
    report = look.report(look.read(fleet.run_query))
    assert not report.healthy
    assert report.summary.startswith("ended.service is active (exited)")
    assert "ended.service has no process" in report.findings[0]
