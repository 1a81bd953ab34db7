"""Power by BMCs: plans from recorded answers, and real runs on an emulator and a simulator."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.api_client import ApiClient
from connectors.command import ApiCall, Shell
from connectors.errors import HostError, ParseError, SetupError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import Change, Leg, Refused, load_catalogue
from runbooks.bmc_power import PowerCycle, PowerOff, PowerOn
from tests.playground.bmc import SERIAL, USER, UUID, IpmiBmc, RedfishBmc
from tests.playground.sshd import Sshd
from tests.runbooks.declared import load_check
from tests.runbooks.servers import RESET, SYSTEM, build_server_fleet, link, recorded, script
from tests.scripted_fleet import ScriptedFleet, build_inventory

ShowBmc = load_check("bmc show")

OFF = PowerOff.model_validate({"host": "nas1"})
CUT = PowerOff.model_validate({"host": "nas1", "how": "cut"})
ON = PowerOn.model_validate({"host": "nas1"})
CYCLE = PowerCycle.model_validate({"host": "nas1"})


def test_bmc_power_off_names_the_server_and_its_services():
    fleet = build_server_fleet()
    plan = OFF.plan(OFF.read(fleet.run_query))
    assert plan.current_state == (
        f"nas1 (HPE ProLiant DL360 Gen10 Plus, serial number {SERIAL}) is on"
    )
    assert plan.notes == [
        "This stops everything on nas1: nfs, zfs.",
        "If it is not off within 300 s, the run fails: then request how=cut.",
    ]
    assert not plan.is_reversible
    assert OFF.takes_down() == CYCLE.takes_down() == [Leg("nas1")]
    assert ON.takes_down() == ()


@pytest.mark.parametrize(
    ("runbook", "power", "kind", "awaited"),
    [
        (OFF, "On", "GracefulShutdown", "Off"),
        (CUT, "On", "ForceOff", "Off"),
        (ON, "Off", "On", "On"),
        # An iLO offers no PowerCycle.
        (CYCLE, "On", "ForceRestart", "On"),
    ],
)
def test_bmc_power_step_is_a_reset_type_that_the_bmc_offers(
    runbook: PowerOff | PowerOn | PowerCycle, power: str, kind: str, awaited: str
):
    fleet = build_server_fleet(PowerState=power)
    (step,) = runbook.plan(runbook.read(fleet.run_query)).steps
    assert isinstance(step.do, ApiCall)
    assert (step.host, step.do.method, step.do.path) == ("nas1", "POST", RESET)
    assert json.loads(step.do.body) == {"ResetType": kind}
    assert (step.do.watched_path, step.do.power_state) == (SYSTEM, awaited)


@pytest.mark.parametrize(("runbook", "power"), [(OFF, "Off"), (CUT, "Off"), (ON, "On")])
def test_bmc_power_plans_no_steps_when_the_power_state_is_as_requested(
    runbook: PowerOff | PowerOn, power: str
):
    assert not runbook.plan(runbook.read(build_server_fleet(PowerState=power).run_query)).steps


def test_bmc_power_cycle_is_verified_by_its_step_and_refused_when_off():
    on = CYCLE.read(build_server_fleet().run_query)
    assert CYCLE.plan(on).steps
    assert not CYCLE.plan_after(on).steps
    off = CYCLE.read(build_server_fleet(PowerState="Off").run_query)
    with pytest.raises(Refused, match="nas1 is off: request bmc power on"):
        CYCLE.plan(off)


@pytest.mark.parametrize(
    "recorded_identity", [{"serial": SERIAL.lower()}, {"uuid": recorded("ilo5-system")["UUID"]}]
)
def test_bmc_power_accepts_the_server_whose_identity_is_in_the_inventory(
    recorded_identity: dict[str, str],
):
    assert OFF.plan(OFF.read(build_server_fleet(recorded_identity).run_query)).steps


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"serial": "CZJ0000002"}, f"its serial number is {SERIAL}, not CZJ0000002"),
        # HPE has the part number in SKU, which many servers share.
        ({"serial": "P28948-B21"}, "not P28948-B21"),
        ({"uuid": UUID}, f"not {UUID}"),
    ],
)
def test_bmc_power_refuses_another_server_than_the_inventory_names(
    other: dict[str, str], words: str
):
    with pytest.raises(Refused, match=words):
        OFF.read(build_server_fleet(other).run_query)


def test_bmc_power_identifies_a_dell_by_its_service_tag():
    fleet = build_server_fleet({"serial": "7XK2J33"}, Manufacturer="Dell Inc.", SKU="7XK2J33")
    assert OFF.plan(OFF.read(fleet.run_query)).steps


def behind_one_bmc(fleet: ScriptedFleet) -> ScriptedFleet:
    members = [link(SYSTEM), link("/redfish/v1/Systems/2")]
    script(fleet, "/redfish/v1/Systems", {"Members": members})
    second = recorded("ilo5-system") | {"SerialNumber": "CZJ0000002", "PowerState": "Off"}
    script(fleet, members[1]["@odata.id"], second)
    return fleet


def test_bmc_power_picks_the_server_of_the_inventory_behind_a_shared_bmc():
    fleet = behind_one_bmc(build_server_fleet({"serial": "CZJ0000002"}))
    assert OFF.read(fleet.run_query).machine.power == "off"
    with pytest.raises(Refused, match=f"2 servers with the serial numbers {SERIAL}, CZJ0000002"):
        OFF.read(behind_one_bmc(build_server_fleet()).run_query)


def test_bmc_power_refuses_a_reset_that_the_bmc_does_not_offer():
    fleet = build_server_fleet(Actions={"#ComputerSystem.Reset": {"target": RESET}})
    with pytest.raises(Refused, match="offers no such action: shut nas1 down"):
        OFF.plan(OFF.read(fleet.run_query))


def test_bmc_power_takes_the_reset_types_that_only_an_action_info_lists():
    fleet = build_server_fleet()
    script(fleet, SYSTEM, recorded("openbmc-system"))
    values = ["GracefulRestart", "ForceOff", "On", "PowerCycle"]
    parameters = [
        {"Name": "Other", "AllowableValues": ["GracefulShutdown"]},
        {"Name": "ResetType", "Required": True, "AllowableValues": values},
    ]
    info = "/redfish/v1/Systems/system/ResetActionInfo"
    script(fleet, info, {"Id": "ResetActionInfo", "Parameters": parameters})
    (step,) = CYCLE.plan(CYCLE.read(fleet.run_query)).steps
    assert isinstance(step.do, ApiCall)
    assert step.do.path == "/redfish/v1/Systems/system/Actions/ComputerSystem.Reset"
    assert json.loads(step.do.body) == {"ResetType": "PowerCycle"}
    with pytest.raises(Refused, match="offers no such action: shut nas1 down"):
        OFF.plan(OFF.read(fleet.run_query))


@pytest.mark.parametrize("runbook", [OFF, CUT, ON, CYCLE])
@pytest.mark.parametrize("power", [None, ""])
def test_bmc_power_is_refused_when_the_power_state_is_unknown(
    runbook: PowerOff | PowerOn | PowerCycle, power: str | None
):
    state = runbook.read(build_server_fleet(PowerState=power).run_query)
    with pytest.raises(Refused, match="does not report whether it is on"):
        runbook.plan(state)


@pytest.mark.parametrize("answer", ["", "[]", "<html>", "null", "[" * 100_000])
def test_invalid_redfish_resource_is_a_parse_error(answer: str):
    fleet = build_server_fleet()
    fleet.script("nas1", ApiCall(SYSTEM), answer)
    with pytest.raises(ParseError):
        OFF.read(fleet.run_query)


@pytest.mark.parametrize("path", ["//evil.example/x", "https://evil.example/", "", "/a b", "/x\n"])
def test_redfish_link_to_another_server_is_a_parse_error(path: str):
    fleet = build_server_fleet()
    script(fleet, "/redfish/v1/Systems", {"Members": [link(path)]})
    with pytest.raises(ParseError, match="bad link"):
        OFF.read(fleet.run_query)


def test_bmc_power_uses_ipmitool_on_another_host_for_a_server_with_ipmi():
    fleet = build_server_fleet()
    cut = CUT.model_copy(update={"host": "old1"})
    (step,) = cut.plan(cut.read(fleet.run_query)).steps
    assert isinstance(step.do, Shell)
    assert step.host == "gate1"
    assert step.do.words[4:8] == ("off", "off", "60", "ipmitool")
    assert not step.do.root


def test_bmc_power_on_a_host_without_a_bmc_says_what_to_add():
    with pytest.raises(SetupError, match="web1 has no bmc with Redfish in the inventory"):
        OFF.model_copy(update={"host": "web1"}).read(build_server_fleet().run_query)


def test_bmc_power_step_is_not_sent_when_the_bmc_changed_after_approval():
    fleet = build_server_fleet()
    (step,) = OFF.plan(OFF.read(fleet.run_query)).steps
    approved = fleet.resolve_command("nas1", step.do)
    assert isinstance(approved, ApiCall)
    assert approved.server.startswith("nas1-ilo.example:443 AB:AB")
    fleet.run_command("nas1", approved)
    moved = build_server_fleet({"address": "web9-ilo.example"})
    with pytest.raises(SetupError, match="changed after the approval"):
        moved.run_command("nas1", approved)
    assert moved.sent == []


# --- real ones ---


def execute(fleet: Fleet, host: str, words: str, **values: str) -> str:
    """Plan, execute and verify a change; return the new state."""
    runbook = load_catalogue()[words].model_validate({"host": host, **values})
    assert isinstance(runbook, Change)
    (step,) = runbook.plan(runbook.read(fleet.run_query)).steps
    fleet.run_command(step.host, fleet.resolve_command(step.host, step.do))
    left = runbook.plan_after(runbook.read(fleet.run_query))
    assert not left.steps
    return left.current_state


@pytest.fixture
def emulated() -> Iterator[Fleet]:
    with RedfishBmc() as bmc:
        entry = build_inventory("nas1")["nas1"].model_dump(exclude={"name"})
        login = {"user": USER, "password_file": "bmc.password", "ca": bmc.authority.name}
        entry["bmc"] = {"address": "127.0.0.1", "port": bmc.port, **login, "uuid": UUID.upper()}
        pool = SshPool(bmc.directory, api_client=ApiClient(bmc.directory, poll_seconds=0.05))
        fleet = Fleet(Inventory.model_validate({"hosts": {"nas1": entry}}), pool)
        yield fleet
        fleet.close()


@pytest.mark.real
def test_redfish_emulator_is_powered_off_on_and_cycled(emulated: Fleet):
    assert execute(emulated, "nas1", "bmc power off", how="cut").endswith("is off")
    assert execute(emulated, "nas1", "bmc power on").endswith("is on")
    assert execute(emulated, "nas1", "bmc power cycle").endswith("which is on")
    show = ShowBmc.model_validate({"host": "nas1"})
    report = show.report(show.read(emulated.run_query))
    assert report.summary == "nas1 is on, health ok"
    assert report.table
    assert ("CPU Temp", "41 °C", "ok") in report.table.rows


@pytest.mark.real
def test_ipmi_simulator_is_shut_down_and_started():
    with IpmiBmc() as bmc, Sshd() as gate:
        login = {"user": USER, "password_file": str(bmc.password_file), "ipmi_cipher": "3"}
        reached = {"address": "127.0.0.1", "port": bmc.port, "ipmi_from": "gate1"}
        entry = {
            **{"address": gate.address, "port": gate.port, "user": gate.user},
            **{"key": str(gate.client_key), "host_key": gate.host_key, "area": "infra"},
        }
        hosts = {"gate1": entry, "old1": {**entry, "bmc": {**reached, **login, "serial": SERIAL}}}
        fleet = Fleet(Inventory.model_validate({"hosts": hosts}), SshPool(Path("/")))
        assert execute(fleet, "old1", "bmc power off").endswith("is off")
        assert execute(fleet, "old1", "bmc power on") == (
            f"old1 (HP ProLiant DL380 G6, serial number {SERIAL}) is on"
        )
        log = load_catalogue()["bmc sel"].model_validate({"host": "old1"})
        (event,) = log.read(fleet.run_query).events
        assert event.message == "Power Supply #0x64, Failure detected, Asserted"
        show = ShowBmc.model_validate({"host": "old1"})
        report = show.report(show.read(fleet.run_query))
        assert report.findings == [
            "PS2 Status is not ok (Presence detected, Failure detected, Power Supply AC lost)"
        ]
        assert report.table is not None
        assert ("Ambient Temp", "24 °C", "ok") in list(report.table.rows)
        bmc.password_file.write_text("wrong\n")
        with pytest.raises(HostError, match="does not answer, or refuses the login"):
            log.read(fleet.run_query)
        fleet.close()
