"""Connections to network devices: a scripted device behind a real SSH server."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from netmiko import ConnectHandler, NetmikoTimeoutException

from connectors.command import (
    CONFIRM,
    DeviceCommand,
    Query,
    Shell,
    SwitchLines,
    enter_with_timer,
)
from connectors.errors import (
    CommandError,
    CommandTimeoutError,
    HostKeyMismatchError,
    LoginError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from connectors.probation import DEVICE, query_probation
from connectors.ssh_pool import SshPool
from connectors.ssh_transport import SshLimits
from tests.playground.device import PASSWORD, Login, ScriptedDevice
from tests.playground.keys import make_key
from tests.playground.sshd import Sshd

PLATFORMS = ("cisco_ios", "dell_powerconnect")
SECRET = "open sesame"


def show(line: str, *, deadline: int = 30) -> Query[str]:
    return Query(DeviceCommand((line, line), platforms=PLATFORMS, deadline=deadline), str.strip)


CLOCK = show("show clock")
ANSWERS = {"show clock": "12:00:01 UTC", "show vlan": "VLAN Name\n1    default"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A policy directory with the passwords of a device."""
    for name, text in {"password": PASSWORD, "enable": SECRET, "wrong": "guess"}.items():
        (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def reach(directory: Path) -> Iterator[Callable[..., Fleet]]:
    """Return a function that makes a fleet of one device, `sw1`."""
    fleets: list[Fleet] = []

    def fleet(device: ScriptedDevice, *, limits: SshLimits | None = None, **more: object) -> Fleet:
        entry = device.inventory_entry(**{"password_file": "password", **more})
        inventory = Inventory.model_validate({"hosts": {"sw1": entry}})
        fleets.append(Fleet(inventory, SshPool(directory, limits=limits)))
        return fleets[-1]

    yield fleet
    for each in fleets:
        each.close()


@pytest.fixture
def device() -> Iterator[ScriptedDevice]:
    with ScriptedDevice(ANSWERS) as device:
        yield device


def test_fifty_device_queries_use_one_login_within_two_seconds(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    fleet = reach(device)
    assert fleet.run_query("sw1", CLOCK) == "12:00:01 UTC"
    begun = time.monotonic()
    for _ in range(50):
        assert fleet.run_query("sw1", show("show vlan")) == "VLAN Name\n1    default"
    # netmiko's own way would take between four and eleven.
    assert time.monotonic() - begun < 2
    assert device.logins == 1


@pytest.mark.parametrize("login", ["password", "keyboard-interactive", "none"])
@pytest.mark.parametrize("secret", ["", SECRET])
def test_device_is_queried_with_each_login_method(
    login: Login, secret: str, reach: Callable[..., Fleet]
):
    with ScriptedDevice(ANSWERS, login=login, secret=secret) as device:
        more = {"enable_file": "enable"} if secret else {}
        assert reach(device, **more).run_query("sw1", CLOCK) == "12:00:01 UTC"


@pytest.mark.parametrize("login", ["password", "keyboard-interactive", "none"])
def test_wrong_device_password_is_reported_at_once_and_not_shown(
    login: Login, reach: Callable[..., Fleet]
):
    with ScriptedDevice(ANSWERS, login=login) as device:
        begun = time.monotonic()
        with pytest.raises(LoginError, match="with the password") as error:
            reach(device, password_file="wrong").run_query("sw1", CLOCK)
        # netmiko takes 22 seconds for this, and calls it a read timeout.
        assert time.monotonic() - begun < 8
        assert "guess" not in str(error.value)
        assert device.logins == 0


def test_wrong_enable_secret_is_reported_and_not_shown(reach: Callable[..., Fleet]):
    with ScriptedDevice(ANSWERS, secret=SECRET) as device:
        with pytest.raises(LoginError, match="refuses the secret") as error:
            reach(device, enable_file="wrong").run_query("sw1", CLOCK)
        assert "guess" not in str(error.value)


def test_device_that_needs_an_enable_secret_names_enable_file(reach: Callable[..., Fleet]):
    with (
        ScriptedDevice(ANSWERS, login="none", secret=SECRET) as device,
        pytest.raises(SetupError, match="set its enable_file"),
    ):
        reach(device).run_query("sw1", CLOCK)


def test_device_password_and_enable_secret_are_not_logged(
    device: ScriptedDevice, reach: Callable[..., Fleet], caplog: pytest.LogCaptureFixture
):
    device.secret = SECRET
    with caplog.at_level(logging.DEBUG):
        reach(device, enable_file="enable").run_query("sw1", CLOCK)
    assert PASSWORD not in caplog.text
    assert SECRET not in caplog.text


def test_device_with_another_host_key_gets_no_login(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    with pytest.raises(HostKeyMismatchError) as error:
        reach(device, host_key=make_key().public).run_query("sw1", CLOCK)
    assert error.value.started is False
    assert (device.logins, device.heard, device.connections) == (0, [], 1)
    # The twins: left to itself netmiko talks to whoever answers …
    settings = {"host": device.address, "port": device.port, "password": PASSWORD}
    careless = ConnectHandler(device_type="cisco_ios", username="keyturn", **settings)
    assert device.logins == 1
    careless.disconnect()
    # … and told to be strict, it calls a stranger's key a timeout.
    known = Path(__file__).with_name("no-such-file")
    with pytest.raises(NetmikoTimeoutException):
        ConnectHandler(
            device_type="cisco_ios",
            username="keyturn",
            ssh_strict=True,
            alt_host_keys=True,
            alt_key_file=str(known),
            **settings,
        )


HOSTILE = (
    "show clock\nreload",
    "show clock\rreload",
    "show clock\x1areload",
    "show clock\x03",
    "show clock\u2028reload",
    "show clock\0",
    "show clock\x7f",
    "show clock; reload",
    "show clock?",
    "show running-config | redirect flash:x",
    "show running-config | tee tftp://192.0.2.1/x",
    "show running-config | include x | redirect flash:x",
    "show clock ",
    "show",
    " show clock",
    "do show clock",
    "reload",
    "write erase",
    "configure terminal",
    "",
    "show " + "x" * 200,
)


@pytest.mark.parametrize("line", HOSTILE)
def test_device_query_that_is_not_a_show_command_is_refused(line: str):
    with pytest.raises(ValueError, match=r"invisible character|not a show command"):
        DeviceCommand((line,), platforms=("cisco_ios",))


def test_show_command_with_a_filter_is_accepted():
    for line in ("show running-config | include ^ntp server", "show ip route 10.0.0.0/8"):
        assert str(DeviceCommand((line,), platforms=("cisco_ios",))) == line


def test_without_the_check_of_show_commands_a_second_line_is_executed(device: ScriptedDevice):
    """netmiko sends each line that it is given."""
    connection = ConnectHandler(
        device_type="cisco_ios",
        host=device.address,
        port=device.port,
        username="keyturn",
        password=PASSWORD,
    )
    connection.send_command("show clock\nshow vlan", cmd_verify=False)
    assert device.heard[-2:] == ["show clock", "show vlan"]
    connection.disconnect()


@pytest.mark.parametrize(
    "line", ["end", "END", "exit", "ex", "do reload", "quit", "logout", " end", "", "a\nend", "\t"]
)
def test_switch_line_that_leaves_configuration_mode_is_refused(line: str):
    with pytest.raises(ValueError, match=r"invisible character|not a configuration line"):
        SwitchLines(("vlan 7", line))


def test_device_query_fails_when_the_device_does_not_know_the_command(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    with pytest.raises(CommandError, match="% Invalid input detected"):
        reach(device).run_query("sw1", show("show standby"))


@pytest.mark.parametrize(
    "words",
    ["% Invalid input", "% Incomplete command.", "%Error", "vrrpd is not running", "ERROR: no"],
)
def test_device_error_message_is_a_failure(
    device: ScriptedDevice, reach: Callable[..., Fleet], words: str
):
    device.answers["show x"] = words
    with pytest.raises(CommandError):
        reach(device).run_query("sw1", show("show x"))


@pytest.mark.parametrize(
    "words",
    [
        "*Mar  1 00:00:01: %SYS-5-CONFIG_I: Configured from console",
        "%LINK-3-UPDOWN: Interface Gi0/1, changed state to up",
        "CPU utilization for five seconds: 10%",
        "Warning: errors 0",
    ],
)
def test_device_output_that_resembles_an_error_is_no_failure(
    device: ScriptedDevice, reach: Callable[..., Fleet], words: str
):
    device.answers["show x"] = words
    assert reach(device).run_query("sw1", show("show x")) == words


def test_device_output_that_resembles_a_prompt_is_read_to_its_end(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    device.answers["show x"] = "banner exec ^C\nsw2#\nother#\n############\nthe end"
    assert reach(device).run_query("sw1", show("show x")).endswith("the end")


def test_device_query_after_a_timeout_uses_a_new_login(
    reach: Callable[..., Fleet],
):
    with ScriptedDevice(ANSWERS, slow=("show tech",)) as device:
        fleet = reach(device)
        assert fleet.run_query("sw1", CLOCK)
        with pytest.raises(CommandTimeoutError, match="'show tech' within 1 s") as error:
            fleet.run_query("sw1", show("show tech", deadline=1))
        assert error.value.started is None
        assert fleet.run_query("sw1", CLOCK) == "12:00:01 UTC"
        assert device.logins == 2


def test_device_that_closed_its_idle_connection_is_logged_in_to_again(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    fleet = reach(device)
    fleet.run_query("sw1", CLOCK)
    device.hang_up()
    assert fleet.run_query("sw1", CLOCK) == "12:00:01 UTC"
    assert device.logins == 2


def test_device_that_hangs_up_during_a_query_has_unknown_outcome(
    reach: Callable[..., Fleet],
):
    with ScriptedDevice(ANSWERS, slow=("show tech",)) as device:
        fleet = reach(device)
        fleet.run_query("sw1", CLOCK)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(fleet.run_query, "sw1", show("show tech"))
            wait_for(lambda: "show tech" in device.heard)
            device.hang_up()
            with pytest.raises(UnknownOutcomeError) as error:
                asked.result()
        assert error.value.started is None


def test_parallel_device_queries_get_their_own_answers_over_one_login(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    fleet = reach(device)
    with ThreadPoolExecutor(8) as pool:
        asked = [show("show vlan"), CLOCK] * 20
        answers = list(pool.map(partial(fleet.run_query, "sw1"), asked))
    assert answers == ["VLAN Name\n1    default", "12:00:01 UTC"] * 20
    assert device.logins == 1


def test_device_is_reached_through_a_jump_host(
    device: ScriptedDevice, sshd: Sshd, directory: Path
):
    entry = device.inventory_entry(password_file="password", jump="gate")
    inventory = Inventory.model_validate(
        {"hosts": {"gate": sshd.inventory_entry(area="infra"), "sw1": entry}}
    )
    sessions = SshPool(directory, idle=100)
    fleet = Fleet(inventory, sessions)
    assert fleet.run_query("sw1", CLOCK) == "12:00:01 UTC"
    sessions.close_idle(time.monotonic() + 10_000)  # the device goes first
    assert sshd.accepted == 1
    fleet.close()


def test_host_that_is_not_a_cisco_fails_device_queries(sshd: Sshd):
    entry = sshd.inventory_entry(area="infra") | {"platform": "cisco_ios"}
    inventory = Inventory.model_validate({"hosts": {"sw1": entry}})
    fleet = Fleet(inventory, SshPool(Path("/"), limits=SshLimits(login=0.5)))
    with pytest.raises((CommandError, UnreachableError, SetupError)):
        fleet.run_query("sw1", CLOCK)
    fleet.close()


# --- configuration ---


def test_switch_lines_are_entered_in_configuration_mode(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    fleet = reach(device)
    fleet.run_command("sw1", SwitchLines(("vlan 7", "name guests")))
    assert device.configured == ["vlan 7", "name guests"]
    assert fleet.run_query("sw1", CLOCK) == "12:00:01 UTC"
    assert device.logins == 1


def test_refused_switch_line_stops_and_counts_the_lines_in_force(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    device.refused = ("name",)
    fleet = reach(device)
    with pytest.raises(CommandError, match=r"refused 'name'; the line before it is in force"):
        fleet.run_command("sw1", SwitchLines(("vlan 7", "name", "vlan 8")))
    assert device.configured == ["vlan 7"]
    assert fleet.run_query("sw1", CLOCK) == "12:00:01 UTC"
    with pytest.raises(CommandError, match=r"refused 'name'; the 2 lines before it are in force"):
        fleet.run_command("sw1", SwitchLines(("vlan 7", "vlan 8", "name")))


def test_device_login_without_enable_configures_nothing(reach: Callable[..., Fleet]):
    with ScriptedDevice(ANSWERS, secret=SECRET) as device:
        fleet = reach(device)
        assert fleet.run_query("sw1", CLOCK) == "12:00:01 UTC"
        with pytest.raises(SetupError, match="enable_file") as error:
            fleet.run_command("sw1", SwitchLines(("vlan 7",)))
        assert error.value.started is False
        assert device.configured == []
        assert "vlan 7" not in device.heard


def test_device_that_hangs_up_during_configuration_has_unknown_outcome(
    reach: Callable[..., Fleet],
):
    with ScriptedDevice(ANSWERS, slow=("vlan 7",)) as device:
        fleet = reach(device)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(fleet.run_command, "sw1", SwitchLines(("vlan 7",)))
            wait_for(lambda: "vlan 7" in device.heard)
            device.hang_up()
            with pytest.raises(UnknownOutcomeError):
                future.result()


# --- who is asked what ---


def test_shell_command_is_not_sent_to_a_network_device(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    with pytest.raises(SetupError, match="without a shell"):
        reach(device).run_command("sw1", Shell(("reboot",)))
    assert device.connections == 0


def test_device_query_is_refused_on_a_host_with_a_shell(sshd: Sshd):
    inventory = Inventory.model_validate({"hosts": {"web1": sshd.inventory_entry(area="web")}})
    with pytest.raises(SetupError, match="not a network device"):
        Fleet(inventory, SshPool(Path("/"))).run_query("web1", CLOCK)


def test_device_query_is_refused_on_a_platform_without_its_command(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    query = Query(DeviceCommand(("show vrrp",), platforms=("frr",)), str)
    with pytest.raises(
        SetupError, match=r"no such command for .* a cisco_ios \(on other platforms: show vrrp\)"
    ):
        reach(device).run_query("sw1", query)
    assert device.connections == 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"platform": "cisco_nxos"}, "platform"),
        ({"platform": "linux", "password_file": "x"}, "are for network devices"),
        ({"platform": "linux", "enable_file": "x"}, "are for network devices"),
    ],
)
def test_inventory_refuses_inconsistent_device_settings(
    device: ScriptedDevice, more: dict[str, object], why: str
):
    with pytest.raises(ValueError, match=why):
        Host.model_validate({"name": "sw1", **device.inventory_entry(**more)})


def test_network_device_is_refused_as_jump_host(device: ScriptedDevice):
    hosts = {"sw1": device.inventory_entry(), "sw2": device.inventory_entry(jump="sw1")}
    with pytest.raises(ValueError, match="jump sw1 is a network device"):
        Inventory.model_validate({"hosts": hosts})


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("x\n", 0o644, "chmod 600"),
        ("x\n", 0o640, "chmod 600"),
        ("", 0o600, "one line"),
        ("\n", 0o600, "one line"),
        ("x\nreload\n", 0o600, "one line"),
        ("x\r\n", 0o600, "one line"),
        (None, 0o600, "cannot read"),
    ],
)
def test_device_password_file_must_be_private_and_one_line(
    device: ScriptedDevice,
    reach: Callable[..., Fleet],
    directory: Path,
    text: str | None,
    mode: int,
    why: str,
):
    file = directory / "odd"
    if text is not None:
        file.write_bytes(text.encode())
        file.chmod(mode)
    with pytest.raises(SetupError, match=why) as error:
        reach(device, password_file="odd").run_query("sw1", CLOCK)
    assert error.value.started is False
    assert device.connections == 0


def test_netmiko_is_imported_only_for_a_network_device():
    code = "import sys, connectors.fleet, connectors.ssh_pool; sys.exit('netmiko' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- other platforms ---


@pytest.mark.parametrize("platform", ["arista_eos", "juniper_junos", "hp_procurve"])
def test_devices_of_other_platforms_are_only_read(platform: str, reach: Callable[..., Fleet]):
    line = "show vlans"
    query = Query(DeviceCommand((line,), platforms=(platform,)), str.strip)
    with ScriptedDevice({line: "1 default"}, platform=platform) as device:
        fleet = reach(device)
        assert fleet.run_query("sw1", query) == "1 default"
        with pytest.raises(SetupError, match=r"enable_file|does not configure devices"):
            fleet.run_command("sw1", SwitchLines(("vlan 7",)))
        assert device.configured == []


# --- configuration that the device reverts ---

TIMED = enter_with_timer(5, "interface Gi1/0/3", "shutdown")


def test_probation_of_switch_lines_is_confirmed_over_a_new_connection(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    fleet = reach(device)
    fleet.run_command("sw1", TIMED)
    assert device.backup is not None
    connections = device.connections
    fleet.run_command("sw1", CONFIRM)
    assert device.connections == connections + 1
    assert (device.backup, device.configured) == (None, ["interface Gi1/0/3", "shutdown"])
    with pytest.raises(CommandError, match="No Rollback Confirmed Change pending"):
        fleet.run_command("sw1", CONFIRM)


def test_refused_switch_line_on_probation_reverts_the_lines_before_it(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    device.refused = ("shutdown",)
    with pytest.raises(CommandError, match=r"refused 'shutdown'; it reverted all lines"):
        reach(device).run_command("sw1", TIMED)
    assert (device.backup, device.configured) == (None, [])


def test_device_without_config_archive_is_not_changed(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    device.archive = False
    with pytest.raises(UnreachableError, match="Turn config archive on") as error:
        reach(device).run_command("sw1", TIMED)
    assert error.value.started is False
    assert device.configured == []


def test_probation_timer_of_a_device_is_queried(
    device: ScriptedDevice, reach: Callable[..., Fleet]
):
    fleet = reach(device)
    assert not fleet.run_query("sw1", query_probation(DEVICE.name)).armed
    device.start_timer()
    assert fleet.run_query("sw1", query_probation(DEVICE.name)).armed == DEVICE.change


def wait_for(claim: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not claim():
        assert time.monotonic() < end
        threading.Event().wait(0.005)
