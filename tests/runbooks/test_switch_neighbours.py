import pytest

from connectors.command import Answer
from connectors.errors import CommandError
from tests.runbooks.declared import load_check
from tests.runbooks.network import build_network_fleet, recorded

SwitchNeighbours = load_check("switch neighbours")

LOOK = SwitchNeighbours.model_validate({"host": "sw1"})


def test_switch_neighbours_lists_neighbours_without_a_name():
    hp = build_network_fleet(
        {("sw1", "show lldp info remote-device"): recorded("hp-lldp-neighbours")},
        platforms={"sw1": "hp_procurve"},
    )
    report = LOOK.report(LOOK.read(hp.run_query))
    assert report.summary == "sw1 has 3 neighbours with LLDP"
    assert report.table is not None
    assert list(report.table.rows)[1] == ("3", "unknown", "3c e1 a1 22 18 f0")
    assert LOOK.report(()).summary == "sw1 has 0 neighbours with LLDP"


def test_switch_neighbours_fails_when_lldp_is_off():
    off = build_network_fleet(
        {("sw1", "show lldp neighbors"): Answer(1, "% LLDP is not enabled")},
        platforms={"sw1": "cisco_ios"},
    )
    with pytest.raises(CommandError, match="LLDP is not enabled"):
        LOOK.read(off.run_query)
