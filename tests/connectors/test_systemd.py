"""Parser of systemctl show, recorded from systemd 252, and how failures are explained."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors import systemd
from connectors.clock import parse_clock
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.systemd import (
    ConfigurationTest,
    Service,
    parse_configuration,
    parse_journal,
    parse_service,
    parse_services,
)
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "systemd"


def recorded(name: str) -> Service:
    return parse_service((ANSWERS / f"{name}.txt").read_text())


def test_running_systemd_service_is_parsed():
    assert recorded("running") == Service(
        name="web.service",
        description="Our web server",
        load_state="loaded",
        active_state="active",
        sub_state="running",
        result="success",
        started_at=datetime(2026, 11, 21, 11, 47, 9, tzinfo=UTC),
        pid=53,
        restart_count=0,
        memory_bytes=258048,
        is_manual=True,
        needs_reload=False,
        dependents=("worker.service", "part.service"),
    )


@pytest.mark.parametrize(
    ("name", "service", "load", "active", "sub"),
    [
        ("failed", "broken.service", "loaded", "failed", "failed"),
        ("stopped", "stopped.service", "loaded", "inactive", "dead"),
        ("starting", "slow.service", "loaded", "activating", "start"),
        ("masked", "off.service", "masked", "inactive", "dead"),
        ("not-found", "nope.service", "not-found", "inactive", "dead"),
    ],
)
def test_every_systemd_state_is_distinguished(
    name: str, service: str, load: str, active: str, sub: str
):
    state = recorded(name)
    assert (state.name, state.load_state, state.active_state, state.sub_state) == (
        service,
        load,
        active,
        sub,
    )
    assert not state.is_running


def test_systemd_services_are_listed_without_the_service_suffix():
    answer = (
        "cron.service     loaded active running Regular background program processing daemon\n"
        "● broken.service loaded failed failed  Broken\n"
        "getty@tty1.service loaded active running Getty on tty1\n"
    )
    assert parse_services(answer) == ("cron", "broken", "getty@tty1")
    assert parse_services("") == ()


@pytest.mark.parametrize("answer", ["cron.service\n", "garbage of four words\n"])
def test_invalid_list_of_systemd_services_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_services(answer))


def test_systemd_conflicts_and_triggers_are_parsed():
    service = recorded("reloadable")
    assert service.conflicts == ("apache2.service",)
    assert service.triggers == ("proxy.socket",)
    assert service.can_reload
    assert service.changed_at == datetime(2026, 11, 21, 11, 50, 0, tzinfo=UTC)
    assert service.starts_at_boot is True
    # As a systemd before 230 prints it.
    assert recorded("running").changed_at is None
    assert recorded("running").starts_at_boot is None


def test_journal_lines_are_parsed():
    lines = (
        "2026-11-21T11:47:09+0000 web1 web[53]: ready\n2026-11-21T11:47:10+0000 web1 web[53]: x\n"
    )
    assert parse_journal(lines) == tuple(lines.splitlines())
    assert parse_journal("-- No entries --\n") == ()
    assert parse_journal("") == ()
    (long,) = parse_journal("x" * 5_000)
    assert long == f"{'x' * 2_000}… (5,000 characters)"


def test_systemd_alias_is_parsed_as_the_name_of_its_service():
    assert recorded("ssh-by-its-alias").name == "ssh.service"


def test_systemd_refuse_manual_start_and_need_daemon_reload_are_parsed():
    assert not recorded("not-by-hand").is_manual
    assert recorded("edited").needs_reload
    assert recorded("stopped").started_at is None


def test_systemd_memory_without_accounting_is_unknown():
    whole = (ANSWERS / "running.txt").read_text()
    assert recorded("stopped").memory_bytes is None
    old = whole.replace("MemoryCurrent=258048", "MemoryCurrent=18446744073709551615")
    assert parse_service(old).memory_bytes is None


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Id=web.service\n",
        "garbage",
        (ANSWERS / "running.txt").read_text().replace("MainPID=53", "MainPID=x"),
        (ANSWERS / "running.txt").read_text().replace("NeedDaemonReload=no", "NeedDaemonReload="),
        (ANSWERS / "running.txt").read_text().replace("11:47:09 UTC", "11:47:09 CET"),
    ],
)
def test_invalid_systemd_service_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_service(answer)


def test_host_clock_is_parsed_with_fractions_of_a_second():
    assert parse_clock("1795261629\n") == datetime(2026, 11, 21, 11, 47, 9, tzinfo=UTC)
    exact = parse_clock("1795261629.250000000\n")
    assert exact == datetime(2026, 11, 21, 11, 47, 9, 250000, tzinfo=UTC)
    # As dates say it that know no fractions.
    assert parse_clock("1795261629.%N\n").microsecond == 0
    for answer in ("", "Sat Nov 21", "-5\n", "1\n2\n"):
        with pytest.raises(ParseError):
            parse_clock(answer)


def test_numeric_service_name_gets_the_service_suffix():
    assert systemd.control_service("restart", "1234").words[5] == "1234.service"
    assert systemd.control_service("stop", "web.service").words[5] == "web.service"
    assert systemd.control_service("restart", "web").root


@pytest.mark.parametrize(
    ("output", "command"),
    [
        ("passes\n", ConfigurationTest()),
        ("no haproxy\n", ConfigurationTest(untested_reason="the program haproxy is missing")),
        ("fails\n[ALERT] a\n[ALERT] b\n", ConfigurationTest(error="[ALERT] a\n[ALERT] b")),
        ("fails\n", ConfigurationTest(error="it fails without a message")),
    ],
)
def test_configuration_test_of_a_service_is_parsed(output: str, command: ConfigurationTest):
    assert parse_configuration(output) == command


@pytest.mark.parametrize("text", ["", "passes\nand more\n", "no a b\n", "sh: 1: x\n"])
def test_invalid_configuration_test_is_a_parse_error(text: str):
    with pytest.raises(ParseError):
        parse_configuration(text)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (
            "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
            "Failed to connect to bus: Host is down",
            "does not run systemd",
        ),
        (
            "Failed to restart worker@.service: Unit name worker@.service is missing the "
            "instance name.",
            "needs its instance",
        ),
        (
            "Job for slowfail.service failed because the control process exited with error code.\n"
            'See "systemctl status slowfail.service" and "journalctl -xeu slowfail.service" for '
            "details.",
            "did not start again",
        ),
        (
            "Job for web.service failed because start of the service was attempted too often.\n"
            'See "systemctl status web.service" and "journalctl -xeu web.service" for details.\n'
            'To force a start use "systemctl reset-failed web.service"\n'
            'followed by "systemctl start web.service" again.',
            "reset-failed",
        ),
    ],
)
def test_systemctl_errors_say_what_to_do(text: str, means: str):
    assert means in str(
        find_failure(
            systemd.control_service("restart", "web"), Answer(1, "", text), frozenset({0})
        )
    )
