from connectors import ipmi
from runbooks.bmc_show import ShowBmc
from tests.runbooks.servers import CONTROLLER, STATUS, build_server_fleet, link, recorded, script

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
