import pytest

from connectors import ipmi, redfish
from connectors.errors import CommandError, HostError, UnreachableError
from tests.runbooks.declared import load_check
from tests.runbooks.servers import (
    CONTROLLER,
    RESET,
    STATUS,
    build_server_fleet,
    link,
    recorded,
    script,
)
from tests.scripted_fleet import ScriptedFleet

ShowBmc = load_check("bmc show")

SHOW = ShowBmc.model_validate({"host": "nas1"})


def test_bmc_show_reports_power_health_sensors_and_a_critical_fan():
    fleet = build_server_fleet()
    script(fleet, "/redfish/v1/Chassis/1", {"Thermal": link("/redfish/v1/Chassis/1/Thermal")})
    script(fleet, "/redfish/v1/Chassis/1/Thermal", recorded("ilo5-thermal"))
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert not report.healthy
    assert report.summary == "nas1 is on, health ok"
    assert report.findings == ["Fan 2 is critical (0 Percent)"]
    assert report.table is not None
    assert list(report.table.rows) == [
        ("Server", "HPE ProLiant DL360 Gen10 Plus", ""),
        ("Serial number", "CZJ0000001", ""),
        ("Power", "on", ""),
        ("Health", "ok", ""),
        ("Next boot only", "as usual", ""),
        ("01-Inlet Ambient", "23 °C", "ok"),
        ("Fan 1", "21 Percent", "ok"),
        ("Fan 2", "0 Percent", "critical"),
    ]


def test_bmc_show_reports_a_bad_health_rollup_as_a_finding():
    fleet = build_server_fleet(Status={"Health": "OK", "HealthRollup": "Warning"}, Links={})
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.findings == ["the BMC reports the health of nas1 as warning"]


def test_bmc_show_reports_chassis_faults_of_a_server_with_ipmi():
    fleet = build_server_fleet()
    faulty = STATUS.replace("Fan Fault    : false", "Fan Fault    : true")
    fleet.script("gate1", ipmi.query_chassis(CONTROLLER).command, faulty)
    show = SHOW.model_copy(update={"host": "old1"})
    report = show.report(show.read(fleet.run_query))
    assert report.findings == ["the BMC reports the health of old1 as cooling/fan fault"]
    assert "HP DL380 G6" in str(report.table)


def show_by_ipmi(sensors: str | HostError) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the findings, and the rows of the sensors. sensors: what `sdr elist` prints."""
    fleet = build_server_fleet()
    fleet.script("gate1", ipmi.query_sensors(CONTROLLER).command, sensors)
    show = SHOW.model_copy(update={"host": "old1"})
    report = show.report(show.read(fleet.run_query))
    assert report.table is not None
    return list(report.findings), [tuple(map(str, row)) for row in list(report.table.rows)[5:]]


def test_bmc_show_reports_sensors_of_a_server_with_ipmi():
    """ipmitool prints ok beside each sensor without thresholds, whatever its states are."""
    findings, rows = show_by_ipmi(
        "CPU1 Temp        | 01h | unr |  3.1 | 96 degrees C\n"
        "FAN 1            | 02h | lcr | 29.1 | 0 RPM\n"
        "FAN 2            | 04h | ns  | 29.2 | No Reading\n"
        "PS1 Status       | 0Ah | ok  | 10.1 | Presence detected\n"
        "PS2 Status       | 0Bh | ok  | 10.2 | Presence detected, Failure detected, Power Supply"
        " AC lost\n"
        "PS Redundancy    | 0Ch | ok  |  7.3 | Redundancy Lost\n"
        "Drive 1          | 80h | ok  | 26.1 | Drive Present, Drive Fault\n"
        "Drive 2          | 81h | ok  | 26.2 | Drive Present\n"
        "CMOS Battery     | 10h | ok  | 40.1 | Low\n"
        "Sys Health       | 11h | ok  |  7.1 | Transition to OK\n"
        "Predictive       | 12h | ok  |  7.1 | Predictive Failure Deasserted\n"
        "Power Supply 1   | 06h | ok  | 10.1 | 0 Watts, Presence detected, Failure detected\n"
        "Power Supply 2   | 07h | ok  | 10.2 | 95 Watts, Presence detected\n"
        "Power Supplies   | 08h | ok  | 10.3 | Non-Redundant: Sufficient from Redundant\n"
        "Fan Block 1      | 09h | ok  |  7.1 | 21.56 percent, Transition to Running\n"
        "CPU1 Temp        | 0Dh | ok  |  3.1 | \n"
        "Mem ECC          | 0Eh | ok  |  8.1 | 0 error\n"
    )
    assert findings == [
        "CPU1 Temp is critically high (96 °C)",
        "FAN 1 is critically low (0 RPM)",
        "PS2 Status is not ok (Presence detected, Failure detected, Power Supply AC lost)",
        "PS Redundancy is not ok (Redundancy Lost)",
        "Drive 1 is not ok (Drive Present, Drive Fault)",
        "CMOS Battery is not ok (Low)",
        "Power Supply 1 is not ok (0 Watts, Presence detected, Failure detected)",
        "Power Supplies is not ok (Non-Redundant: Sufficient from Redundant)",
    ]
    assert rows[2] == ("FAN 2", "No Reading", "")
    assert rows[12] == ("Power Supply 2", "95 Watts, Presence detected", "ok")
    assert rows[-1] == ("Mem ECC", "0 error", "ok")
    assert len(rows) == 17


@pytest.mark.parametrize(
    "sensors", ["", CommandError("the BMC has no list of its sensors")], ids=["none", "refused"]
)
def test_bmc_show_finds_that_a_server_with_ipmi_lists_no_sensors(sensors: str | HostError):
    (finding,), rows = show_by_ipmi(sensors)
    assert finding.startswith("the sensors could not be read, so their health is unknown: the BMC")
    assert rows == []


CHASSIS = "/redfish/v1/Chassis/1"
THERMAL, POWER = f"{CHASSIS}/ThermalSubsystem", f"{CHASSIS}/PowerSubsystem"
OK = {"Health": "OK", "State": "Enabled"}


def list_sensor_rows(fleet: ScriptedFleet) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the rows of the sensors, which follow five of the server, and the findings."""
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.table is not None
    return [tuple(map(str, row)) for row in list(report.table.rows)[5:]], list(report.findings)


def test_bmc_show_reads_the_thermal_and_power_subsystems_of_newer_bmcs():
    fleet = build_server_fleet()
    links = {"ThermalSubsystem": link(THERMAL), "PowerSubsystem": link(POWER)}
    script(fleet, CHASSIS, {**links, "Sensors": link(f"{CHASSIS}/Sensors")})
    metrics = f"{THERMAL}/ThermalMetrics"
    thermal = {"ThermalMetrics": link(metrics), "Fans": link(f"{THERMAL}/Fans")}
    script(fleet, THERMAL, thermal)
    readings = [
        {"DataSourceUri": f"{CHASSIS}/Sensors/temperature_inlet", "Reading": 23.5},
        {"DeviceName": "CPU1", "DataSourceUri": f"{CHASSIS}/Sensors/cpu1", "Reading": 41},
    ]
    script(fleet, metrics, {"TemperatureReadingsCelsius": readings})
    fans = [link(f"{THERMAL}/Fans/{each}") for each in range(3)]
    script(fleet, f"{THERMAL}/Fans", {"Members": fans})
    spinning = {"Name": "Fan 0", "SpeedPercent": {"Reading": 32, "SpeedRPM": 5000}, "Status": OK}
    script(fleet, f"{THERMAL}/Fans/0", spinning)
    dead = {"State": "Enabled", "Health": "Critical"}
    script(fleet, f"{THERMAL}/Fans/1", {"Name": "Fan 1", "SpeedPercent": None, "Status": dead})
    script(fleet, f"{THERMAL}/Fans/2", {"Name": "Fan 2", "Status": {"State": "Absent"}})
    script(fleet, POWER, {"PowerSupplies": link(f"{POWER}/PowerSupplies")})
    supply = {"@odata.id": f"{POWER}/PowerSupplies/0", "Name": "PSU 0", "Status": OK}
    script(fleet, f"{POWER}/PowerSupplies", {"Members": [supply]})
    rows, findings = list_sensor_rows(fleet)
    assert rows == [
        ("temperature_inlet", "23.5 °C", ""),
        ("CPU1", "41 °C", ""),
        ("Fan 0", "32 Percent", "ok"),
        ("Fan 1", "", "critical"),
        ("PSU 0", "", "ok"),
    ]
    assert findings == ["Fan 1 is critical"]


def test_bmc_show_reads_single_sensors_when_the_bmc_has_nothing_else():
    fleet = build_server_fleet()
    script(fleet, CHASSIS, {"Sensors": link(f"{CHASSIS}/Sensors")})
    paths = [f"{CHASSIS}/Sensors/{each}" for each in range(40)]
    script(fleet, f"{CHASSIS}/Sensors", {"Members": [link(path) for path in paths]})
    for path in paths:
        content = {"Name": path[-2:], "Reading": 23, "ReadingUnits": "Cel", "Status": OK}
        script(fleet, path, content)
    rows, _ = list_sensor_rows(fleet)
    assert len(rows) == 40
    assert rows[-1] == ("39", "23 °C", "ok")


def script_error(fleet: ScriptedFleet, path: str, error: HostError) -> None:
    fleet.script("nas1", redfish.query_resource(path).command, error)


def build_fans(count: int) -> ScriptedFleet:
    """Return a fleet whose server has so many fans, each with a resource of its own."""
    fleet = build_server_fleet()
    script(fleet, CHASSIS, {"ThermalSubsystem": link(THERMAL)})
    script(fleet, THERMAL, {"Fans": link(f"{THERMAL}/Fans")})
    fans = [f"{THERMAL}/Fans/{each}" for each in range(count)]
    script(fleet, f"{THERMAL}/Fans", {"Members": [link(path) for path in fans]})
    for path in fans:
        script(fleet, path, {"Name": f"Fan {path[-1]}", "SpeedPercent": 32, "Status": OK})
    return fleet


@pytest.mark.parametrize(
    ("dead", "names"),
    [
        (f"{THERMAL}/Fans/1", ["Fan 0", "Fan 2"]),
        (f"{THERMAL}/Fans", []),
        (THERMAL, []),
        (CHASSIS, []),
    ],
)
def test_bmc_show_reports_the_rest_when_one_link_is_dead(dead: str, names: list[str]):
    fleet = build_fans(3)
    script_error(fleet, dead, CommandError("the BMC of nas1 returned status 404"))
    rows, findings = list_sensor_rows(fleet)
    assert [row[0] for row in rows] == names
    assert findings == [f"{dead} could not be read: the BMC of nas1 returned status 404"]


def test_bmc_show_reads_no_further_sensors_when_the_bmc_falls_silent():
    fleet = build_fans(3)
    script_error(fleet, f"{THERMAL}/Fans/1", UnreachableError("the BMC of nas1 does not answer"))
    rows, findings = list_sensor_rows(fleet)
    assert [row[0] for row in rows] == ["Fan 0"]
    assert findings == ["further sensors were not read: the BMC of nas1 does not answer"]


def test_bmc_show_reports_a_server_whose_list_of_actions_is_dead():
    reset = {"#ComputerSystem.Reset": {"target": RESET, "@Redfish.ActionInfo": "/redfish/v1/A"}}
    fleet = build_server_fleet(Actions=reset, Links={})
    script_error(fleet, "/redfish/v1/A", CommandError("status 500"))
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.summary == "nas1 is on, health ok"
    assert report.findings == ["/redfish/v1/A could not be read: status 500"]


@pytest.mark.parametrize("power", [None, ""])
def test_bmc_show_reports_an_unknown_power_state_as_a_finding(power: str | None):
    fleet = build_server_fleet(PowerState=power, Links={})
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.summary == "the power of nas1 is unknown, health ok"
    assert report.findings == ["the BMC does not report whether nas1 is on"]
