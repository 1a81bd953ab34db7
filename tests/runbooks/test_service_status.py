from dataclasses import replace

import pytest
from pydantic import ValidationError

from connectors import systemd
from connectors.errors import CommandError
from tests.connectors.test_systemd import ANSWERS, recorded
from tests.runbooks.declared import load_check
from tests.runbooks.hostile import HOSTILE_NAMES
from tests.scripted_fleet import ScriptedFleet

LINE = "2026-11-21T11:47:09+0000 web1 web[53]: ready"
ServiceStatus = load_check("service status")
LOOK = ServiceStatus.model_validate({"host": "web1", "service": "web"})


def test_running_service_is_healthy():
    answer = (ANSWERS / "running.txt").read_text()
    fleet = ScriptedFleet(
        {
            ("web1", systemd.query_service("web").command): answer,
            ("web1", systemd.query_journal("web").command): LINE + "\n",
        }
    )
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert report.healthy
    assert report.summary == "web.service is active (running) since 2026-11-21 11:47:09 UTC"
    assert report.table is not None
    assert ("restarted with it", "worker.service, part.service") in report.table.rows
    assert report.table.rows[-1] == ("journal", LINE)


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("failed", "is failed (failed), ended with: exit-code"),
        ("stopped", "is not running: it is inactive (dead)"),
        ("starting", "is not running: it is activating (start)"),
        ("masked", "someone has disabled every way to start it"),
        ("not-found", "no such service"),
        ("edited", "daemon-reload"),
    ],
)
def test_service_that_is_not_running_is_a_finding(name: str, finding: str):
    report = LOOK.report((recorded(name), ()))
    assert not report.healthy
    assert finding in report.findings[0]


def test_service_with_many_restarts_is_a_finding():
    report = LOOK.report((replace(recorded("running"), restart_count=12), ()))
    assert not report.healthy
    assert "12 times" in report.findings[0]


def test_service_status_works_without_the_sudo_rule_for_the_journal():
    refused = CommandError("sudo: a password is required")
    fleet = ScriptedFleet(
        {
            ("web1", systemd.query_service("web").command): (ANSWERS / "running.txt").read_text(),
            ("web1", systemd.query_journal("web").command): refused,
        }
    )
    report = LOOK.report(LOOK.read(fleet.run_query))
    assert not report.healthy
    assert report.findings == ["Its journal could not be read: sudo: a password is required"]


@pytest.mark.parametrize("service", HOSTILE_NAMES)
def test_service_status_refuses_an_invalid_service_name_before_any_query(service: object):
    with pytest.raises(ValidationError):
        ServiceStatus.model_validate({"host": "web1", "service": service})
