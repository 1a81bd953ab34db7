"""SNMP with a real agent, Net-SNMP's, which serves the tables of a power strip."""

from collections.abc import Callable, Iterator

import pytest

from bot.hosts.live_check import check_host
from connectors import pdu
from connectors.command import RunHooks, SwitchLines
from connectors.errors import (
    CommandError,
    FencedError,
    HostError,
    LoginError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.pdu import TABLES
from connectors.ssh_pool import SshPool
from tests.playground.daemon import ProgramMissing, find_free_port
from tests.playground.pdu import PowerStrip

MakeStrip = Callable[..., PowerStrip]


@pytest.fixture
def make_strip() -> Iterator[MakeStrip]:
    strips: list[PowerStrip] = []

    def make(mib: str = "rPDU2 of PowerNet-MIB", **options: bool) -> PowerStrip:
        try:
            strips.append(PowerStrip(mib, **options))
        except ProgramMissing as missing:
            pytest.skip(str(missing))
        return strips[-1].start()

    yield make
    for strip in strips:
        strip.close()


def fleet_of(strip: PowerStrip, **fields: object) -> Fleet:
    entry = {**strip.entry, "area": "infra", **fields}
    inventory = Inventory.model_validate({"hosts": {"pdu1": entry}})
    return Fleet(inventory, SshPool(strip.directory))


def states(fleet: Fleet) -> list[str]:
    return [outlet.state for outlet in fleet.run_query("pdu1", pdu.query_outlets())]


@pytest.mark.real
@pytest.mark.parametrize("mib", TABLES)
def test_outlet_is_switched_by_snmp_with_every_mib(make_strip: MakeStrip, mib: str):
    fleet = fleet_of(make_strip(mib))
    first, second, third = fleet.run_query("pdu1", pdu.query_outlets())
    assert (first.table, first.number, second.number, third.number) == (mib, "1", "2", "3")
    assert (first.name, second.name, third.name) == ("web1 A", "web2 é; $(id)", "")
    assert (first.state, second.state, third.state) == ("on", "on", "on")
    # A stored plan has the lines alone.
    off = SwitchLines(pdu.switch_outlet(second, "off").lines)
    assert "INTEGER: " in fleet.run_command("pdu1", off).out
    fleet.run_command("pdu1", pdu.switch_outlet(first, "cycle"))
    assert states(fleet) == ["off", "off", "on"]


@pytest.mark.real
def test_snmp_errors_distinguish_rights_login_and_reachability(make_strip: MakeStrip):
    strip = make_strip(read_only=True)
    fleet = fleet_of(strip)
    (outlet, *_) = fleet.run_query("pdu1", pdu.query_outlets())
    off = pdu.switch_outlet(outlet, "off")
    with pytest.raises(CommandError, match="the right to write"):
        fleet.run_command("pdu1", off)
    healthy = check_host(fleet, "pdu1")
    assert (healthy.reachable, healthy.login, healthy.error) == (True, True, "")
    by_community = fleet_of(strip, snmp={"community_file": "community"})
    assert states(by_community) == ["on", "on", "on"]
    swapped = {"user": "keyturn", "auth_file": "privacy", "privacy_file": "auth"}
    stranger = {"user": "eve", "auth_file": "auth", "privacy_file": "privacy"}
    for snmp in (swapped, stranger):
        with pytest.raises(LoginError, match="passphrase files"):
            fleet_of(strip, snmp=snmp).run_command("pdu1", off)
    assert check_host(fleet_of(strip, snmp=stranger), "pdu1").login is False
    for line in ("interface Gi1/0/1", "1.3 s 1"):
        with pytest.raises(SetupError, match="Nothing was sent"):
            fleet.run_command("pdu1", SwitchLines((line,)))

    def refuse() -> None:
        raise FencedError("another worker has it")

    with pytest.raises(FencedError):
        fleet.run_command("pdu1", off, hooks=RunHooks(before_send=refuse))


@pytest.mark.real
def test_snmp_set_without_a_response_has_unknown_outcome_and_is_sent_once(
    make_strip: MakeStrip, monkeypatch: pytest.MonkeyPatch
):
    from connectors import snmp

    monkeypatch.setattr(snmp, "_TIMEOUT", 0.2)
    strip = make_strip()
    fleet = fleet_of(strip)
    (outlet, *_) = fleet.run_query("pdu1", pdu.query_outlets())
    with pytest.raises(UnknownOutcomeError, match="may or may not"):
        # The agent ends between the last check and the message.
        fleet.run_command(
            "pdu1", pdu.switch_outlet(outlet, "cycle"), hooks=RunHooks(before_send=strip.stop)
        )
    with pytest.raises(UnreachableError, match="does not answer SNMP") as gone:
        states(fleet_of(strip, port=find_free_port("127.0.0.1")))
    assert isinstance(gone.value, HostError)
    assert gone.value.started is False
