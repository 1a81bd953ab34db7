"""A check that finds nothing where its host's tag or its request says that there is something."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from connectors.bond import Bond, BondSample, LinkCounters
from connectors.carp import CarpHost
from connectors.rate_limit import LimitCounts, RateLimits
from connectors.zfs import ZfsStorage
from runbooks import Check, load_catalogue
from runbooks._catalogue import is_own
from runbooks.bond_check import BondState
from runbooks.msa_show import ArrayState
from runbooks.nfs_scheduler_show import ExportState
from runbooks.raid_check import RaidState
from runbooks.switch_errors import ErrorCounts
from runbooks.vpn_check import VpnState
from runbooks.zfs_pools import PoolState
from tests.runbooks.declared import load_check
from tests.runbooks.servers import build_server_fleet

ShowBmc = load_check("bmc show")

_BOND = Bond("bond0", "balance-rr", is_up=True, is_monitored=True, members=())
_LINKS = {"bond0": LinkCounters("bond0", 1500, 0, 0, 0)}
_SAMPLES = BondSample(1.0, _BOND, _LINKS), BondSample(2.0, _BOND, _LINKS)


def _read_silent_bmc() -> Any:
    show = ShowBmc.model_validate({"host": "nas1"})
    state = show.read(build_server_fleet(Status={}, Links={}).run_query)
    return replace(state, sensors=())


# The state of each check where nothing is found.
_NOTHING: dict[str, Callable[[], Any]] = {
    "abusers tables": lambda: ((), ()),
    "bgp check": tuple,
    "bmc show": _read_silent_bmc,
    "bond check": lambda: BondState(_BOND, _LINKS, {}),
    "bond watch": lambda: _SAMPLES,
    "carp check": lambda: {"web1": CarpHost((), None)},
    "disk io": tuple,
    "hsrp check": lambda: {"web1": ()},
    "msa show": lambda: ArrayState((), (), (), (), (), ()),
    "nfs scheduler show": lambda: ExportState((), {}),
    "raid check": lambda: RaidState((), {}, {}),
    "ratelimit check": lambda: (
        RateLimits((), (), 429, dry_run=False),
        LimitCounts({}, {}, is_logged=False),
    ),
    "switch errors": lambda: ErrorCounts(()),
    "switch ports": tuple,
    "switch vlan": tuple,
    "vpn check": lambda: VpnState((), (), ()),
    "zfs io": tuple,
    "zfs pools": lambda: PoolState(ZfsStorage((), datetime.now(UTC)), {}),
}
# Where nothing is an ordinary answer, or where reading refuses it.
_NO_STATE = {
    "abusers show": "no client is marked; a missing table is refused",
    "allocator check": "reading fails without a process",
    "bmc sel": "an event log may be empty",
    "bots top": "nobody made a request; reading fails without a log",
    "cert check": "reading fails where nothing listens; a missing certificate is a finding",
    "conntrack check": "figures, not a list",
    "csf find": "the address is in no list",
    "csf pingdom show": "a feed that cannot be read is a finding",
    "hidepid show": "one figure, not a list",
    "host changes": "nothing changed",
    "mail queue check": "the queue is empty",
    "nfs clients show": "no client is connected; a stopped server is a finding",
    "power outlets show": "reading fails without an outlet",
    "service status": "a missing unit is a finding",
    "shaping show": "nothing is limited",
    "switch addresses": "no address was learned, or none matches",
    "switch lag": "a switch may have no aggregation; a missing one is refused",
    "switch neighbours": "no neighbour sends LLDP",
    "tcp window check": "figures, not a list",
    "uptime check": "figures, not a list",
    "zfs scrub status": "a missing pool is refused",
}


def _list_checks() -> dict[str, type[Check[Any]]]:
    return {
        words: runbook
        for words, runbook in load_catalogue().items()
        if issubclass(runbook, Check) and not is_own(runbook)
    }


def test_every_check_says_what_it_reports_when_it_finds_nothing():
    assert _list_checks().keys() == _NOTHING.keys() | _NO_STATE.keys()
    assert not _NOTHING.keys() & _NO_STATE.keys()


@pytest.mark.parametrize("words", _NOTHING)
def test_check_needs_attention_when_it_finds_nothing(words: str):
    report = _list_checks()[words].model_validate({"host": "web1"}).report(_NOTHING[words]())
    assert not report.healthy
    assert report.findings


def test_carp_check_says_what_else_is_wrong_when_it_finds_no_group():
    check = _list_checks()["carp check"].model_validate({"host": "web1"})
    findings = check.report({"web1": CarpHost((), None, is_allowed=False)}).findings
    assert findings[0].endswith("or remove the tag carp")
    assert findings[1] == "web1 takes no part in CARP: net.inet.carp.allow is 0"
