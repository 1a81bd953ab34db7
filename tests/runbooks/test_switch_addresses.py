import pytest
from pydantic import ValidationError

from connectors.switch_tables import LearnedAddress, parse_addresses
from runbooks.switch_addresses import SwitchAddresses
from tests.runbooks.network import build_network_fleet, recorded


def find(**values: str) -> list[str]:
    check = SwitchAddresses.model_validate({"host": "sw1", **values})
    dell = build_network_fleet(
        {("sw1", "show bridge address-table"): recorded("dell-addresses")},
        platforms={"sw1": "dell_powerconnect"},
    )
    report = check.report(check.read(dell.run_query))
    assert report.table is not None
    return [row[0] for row in report.table.rows]


def test_mac_addresses_are_found_by_port_and_in_any_notation():
    assert len(find()) == 5
    assert find(port="G48") == ["00:08:e3:ff:fc:28", "00:11:32:7c:0e:ba"]
    for spelling in ("70:B5:e8:d5:e2:fc", "70b5.e8d5", "70b5e8-d5e2fc", "70"):
        assert find(address=spelling) == ["70:b5:e8:d5:e2:fc"]


def test_switch_addresses_lists_200_mac_addresses_and_counts_the_rest():
    check = SwitchAddresses.model_validate({"host": "sw1"})
    many = [LearnedAddress(f"{n:012x}", "1", "g1", "dynamic") for n in range(203)]
    report = check.report(many)
    assert report.summary == "sw1 knows 203 MAC addresses"
    assert list(report.findings) == ["3 more are not shown: give an address or a port"]
    one = SwitchAddresses.model_validate({"host": "sw1", "port": "ae3.0"})
    addresses = parse_addresses(recorded("junos-addresses"))
    assert one.report(addresses).summary == "sw1 knows 1 MAC address of 2 that match"


@pytest.mark.parametrize("address", ["x", "52:54:00; reload", "52:54 00", "5" * 40])
def test_invalid_mac_address_is_refused(address: str):
    with pytest.raises(ValidationError):
        SwitchAddresses.model_validate({"host": "sw1", "address": address})
