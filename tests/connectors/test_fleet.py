"""How the fleet resolves commands and judges answers, on scripted hosts."""

import pytest

from connectors.command import (
    NO_HOOKS,
    Answer,
    Hint,
    Query,
    QueryCommand,
    RunHooks,
    Setting,
    Shell,
    SwitchLines,
    make_program_check,
)
from connectors.errors import (
    CommandError,
    HostError,
    HostKeyMismatchError,
    OutputLimitError,
    SetupError,
    UnknownHostError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from tests.scripted_fleet import ScriptedFleet, build_inventory

UPTIME = Query(Shell(("uptime",)), str.strip)
REBOOT = Shell(("reboot",), root=True)


class Recorder:
    """Stands in for the SSH pool, and records host, command and jump hosts of each call."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, list[str]]] = []
        self.closed = False

    def run(
        self,
        host: Host,
        command: QueryCommand,
        *,
        through: tuple[Host, ...] = (),
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002 - no command is sent here
    ) -> Answer:
        self.heard.append((host.name, str(command), [jump.name for jump in through]))
        return Answer(0, "")

    def close(self) -> None:
        self.closed = True


def test_query_returns_the_parsed_answer():
    assert (
        ScriptedFleet({("web1", "uptime"): " up 3 days \n"}).run_query("web1", UPTIME)
        == "up 3 days"
    )


def test_failed_query_shows_the_output_of_the_host():
    fleet = ScriptedFleet({("web1", "uptime"): Answer(1, "", "no clock\n")})
    with pytest.raises(CommandError, match="output: no clock"):
        fleet.run_query("web1", UPTIME)


def test_query_with_an_accepted_exit_status_is_parsed():
    query = Query(Shell(("grep", "-c", "x", "/etc/motd")), int, statuses=frozenset({0, 1}))
    fleet = ScriptedFleet({("web1", query.command): Answer(1, "0\n")})
    assert fleet.run_query("web1", query) == 0


def test_truncated_output_is_not_parsed():
    fleet = ScriptedFleet({("web1", "uptime"): Answer(0, "up 3 days", omitted_bytes=17)})
    with pytest.raises(OutputLimitError, match="17 bytes more than Keyturn stores"):
        fleet.run_query("web1", UPTIME)


def test_command_with_an_error_message_and_exit_status_0_fails():
    command = Shell(
        ("socat",),
        error_pattern=r"Unknown command",
        hints=(Hint("Unknown", "HAProxy is too old"),),
    )
    fleet = ScriptedFleet({("lb1", command): "Unknown command\n"})
    with pytest.raises(CommandError, match="HAProxy is too old"):
        fleet.run_command("lb1", command)


def test_missing_program_is_named_with_its_package():
    failure = Answer(
        127, "", "timeout: failed to run command 'zpool': No such file or directory\n"
    )
    with pytest.raises(CommandError, match="program zpool is missing: install zfsutils-linux"):
        ScriptedFleet({("nfs1", "zpool"): failure}).run_command("nfs1", Shell(("zpool",)))


@pytest.mark.parametrize(
    ("output", "program"),
    [
        ("sudo: mdadm: command not found", "mdadm"),
        ("sh: 1: tc: not found", "tc"),
        ("bash: line 1: socat: command not found", "socat"),
        ("timeout: failed to run command ‘nginx’: No such file or directory", "nginx"),
    ],
)
def test_missing_program_is_recognised_in_every_shell_message(output: str, program: str):
    fleet = ScriptedFleet({("web1", "x"): Answer(127, "", output)})
    with pytest.raises(CommandError, match=f"the program {program} is missing: install"):
        fleet.run_command("web1", Shell(("x",)))


@pytest.mark.parametrize(
    ("program", "meaning"),
    [
        ("missing", "the program zpool is missing: install zfsutils"),
        ("there", "may not run this"),
    ],
)
def test_missing_program_under_sudo_is_distinguished_from_a_missing_sudo_rule(
    program: str, meaning: str
):
    """sudo prints the same for both: a password is required."""
    refused = Answer(1, "", "sudo: a password is required\n")
    query = Query(Shell(("zpool", "status", "-v"), root=True), str.strip)
    check = make_program_check(Shell(("sudo", "-n", "--", "zpool", "status", "-v")), refused)
    assert check is not None
    command = "sudo -n -- zpool status -v"
    fleet = ScriptedFleet(
        {("nas1", command): refused, ("nas1", str(check)): program},
        inventory=build_inventory("nas1", user="keyturn"),
    )
    with pytest.raises(CommandError, match=meaning):
        fleet.run_query("nas1", query)
    with pytest.raises(CommandError, match=meaning):
        fleet.run_command("nas1", Shell(("zpool", "status", "-v"), root=True))


def test_root_command_uses_sudo_when_the_login_is_not_root():
    recorder = Recorder()
    Fleet(build_inventory("web1", user="keyturn"), recorder).run_command("web1", REBOOT)
    Fleet(build_inventory("web1", user="root"), recorder).run_command("web1", REBOOT)
    assert [words for _, words, _ in recorder.heard] == ["sudo -n -- reboot", "reboot"]


def test_resolved_command_is_not_resolved_again():
    recorder = Recorder()
    fleet = Fleet(build_inventory("web1", user="keyturn"), recorder)
    fleet.run_command("web1", fleet.resolve_command("web1", REBOOT))
    assert recorder.heard == [("web1", "sudo -n -- reboot", [])]


def test_command_setting_is_resolved_for_each_host():
    inventory = Inventory.model_validate(
        {
            "defaults": build_inventory("x")["x"].model_dump(
                include={"address", "host_key", "area"}
            ),
            "hosts": {"lb1": {"settings": {"haproxy.socket": "/run/h.sock"}}, "lb2": None},
        }
    )
    command = Shell(("test", "-S", Setting("haproxy.socket", "/var/h.sock")))
    fleet = Fleet(inventory, Recorder())
    assert str(fleet.resolve_command("lb1", command)) == "test -S /run/h.sock"
    assert str(fleet.resolve_command("lb2", command)) == "test -S /var/h.sock"


def test_jump_hosts_are_passed_in_order():
    entry = build_inventory("x")["x"].model_dump(include={"address", "host_key", "area"})
    inventory = Inventory.model_validate(
        {
            "hosts": {
                "gate": entry,
                "inner": {**entry, "jump": "gate"},
                "web1": {**entry, "jump": "inner"},
            }
        }
    )
    recorder = Recorder()
    Fleet(inventory, recorder).run_command("web1", Shell(("true",)))
    assert recorder.heard[0][2] == ["gate", "inner"]


def test_new_inventory_applies_from_the_next_command():
    recorder = Recorder()
    fleet = Fleet(build_inventory("web1"), recorder)
    with pytest.raises(UnknownHostError):
        fleet.run_command("web2", Shell(("true",)))
    fleet.inventory = build_inventory("web2")
    fleet.run_command("web2", Shell(("true",)))
    with pytest.raises(UnknownHostError):
        fleet.run_command("web1", Shell(("true",)))
    assert [host for host, _, _ in recorder.heard] == ["web2"]


def test_switch_lines_are_not_sent_to_a_host_with_a_shell():
    recorder = Recorder()
    with pytest.raises(SetupError) as error:
        Fleet(build_inventory("sw1"), recorder).run_command("sw1", SwitchLines(("vlan 7",)))
    assert error.value.started is False
    assert recorder.heard == []


def test_closing_the_fleet_closes_its_ssh_sessions():
    recorder = Recorder()
    Fleet(build_inventory("web1"), recorder).close()
    assert recorder.closed


# --- the scripted fleet itself, since other tests stand on it ---


def test_scripted_fleet_returns_its_replies_in_turn_and_repeats_the_last():
    fleet = ScriptedFleet({("web1", "uptime"): ["one", lambda: Answer(0, "two"), "three"]})
    assert [fleet.run_query("web1", UPTIME) for _ in range(4)] == ["one", "two", "three", "three"]


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (UnreachableError("web1 refused"), 0),
        (UnknownOutcomeError("who knows"), 1),
        (CommandError("no"), 1),
    ],
)
def test_scripted_fleet_records_what_reached_the_host(error: HostError, sent: int):
    fleet = ScriptedFleet({("web1", "reboot"): error})
    with pytest.raises(type(error)):
        fleet.run_command("web1", REBOOT)
    assert fleet.tried == [("web1", "reboot")]
    assert len(fleet.sent) == sent


def test_scripted_fleet_fails_the_test_on_an_unscripted_query():
    with pytest.raises(AssertionError, match="no answer is scripted for web1: uptime"):
        ScriptedFleet(hosts=["web1"]).run_query("web1", UPTIME)


def test_command_is_not_sent_when_the_host_key_changed_after_approval():
    """The inventory can be replaced after the gate has passed and before the command is sent."""
    recorder = Recorder()
    fleet = Fleet(build_inventory("web1"), recorder)
    with pytest.raises(
        HostKeyMismatchError, match="the key of web1 in the inventory changed after the approval"
    ) as error:
        fleet.run_command("web1", REBOOT, fingerprint="SHA256:approved")
    assert error.value.started is False
    assert recorder.heard == []
    # The twin: without the fingerprint it is sent to whatever stands in the inventory now.
    fleet.run_command("web1", REBOOT)
    fleet.run_command("web1", REBOOT, fingerprint=fleet.inventory["web1"].fingerprint)
    assert len(recorder.heard) == 2
