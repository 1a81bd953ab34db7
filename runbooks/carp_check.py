from collections.abc import Iterator, Mapping

from pydantic import Field

from connectors import carp
from connectors.amounts import format_count
from connectors.carp import CarpGroup, CarpHost
from connectors.command import QueryRunner
from connectors.errors import HostError
from runbooks import Check, Host, Refused, Report, Table, make_host_field
from runbooks._parts import list_host_errors, read_hosts

# What each host knows, by host.
Pair = Mapping[str, CarpHost]
# With why a host of the pair could not be read.
PairReading = Mapping[str, CarpHost | HostError]

_MISSING = (
    "configure CARP and `service netif restart` (FreeBSD) or `sh /etc/netstart` (OpenBSD), or "
    "remove the tag carp"
)


class CheckCarp(
    Check[PairReading],
    words="carp check",
    example="fw1 fw2",
    verifies_tag=True,
    columns=("Host", "Interface", "VHID", "State", "Skew", "Addresses"),
):
    """Check the shared addresses of FreeBSD and OpenBSD hosts with CARP."""

    host: Host = make_host_field("carp")
    other: Host | None = Field(
        default=None,
        title="Other host",
        description="The second host of the pair, to check each group from both sides",
        json_schema_extra={"choices": "hosts", "tag": "carp"},
    )

    def read(self, run_query: QueryRunner) -> PairReading:
        if self.other == self.host:
            raise Refused(f"{self.host} is given twice: enter two different hosts, or one")
        hosts = [self.host, self.other] if self.other else [self.host]
        return read_hosts(hosts, lambda host: run_query(host, carp.query_groups()))

    def report(self, reading: PairReading) -> Report:
        pair = {host: known for host, known in reading.items() if isinstance(known, CarpHost)}
        rows = [_format_row(host, group) for host, known in pair.items() for group in known.groups]
        findings = [
            *list_host_errors(reading),
            *(finding for host, known in pair.items() for finding in _list_findings(host, known)),
            *(_list_pair_findings(pair) if len(pair) > 1 else ()),
        ]
        if not rows:
            names = " and ".join(pair)
            absent = f"ifconfig lists no interface with a vhid on {names}: {_MISSING}"
            return Report.from_findings(f"No CARP group on {names}", [absent, *findings])
        vhids = {group.vhid for known in pair.values() for group in known.groups}
        return Report.from_findings(
            f"{format_count(len(vhids), 'CARP group')} on {' and '.join(pair)}: "
            + (f"{len(findings)} to fix" if findings else "all healthy"),
            findings,
            table=Table(self.columns, rows),
        )


def _list_findings(host: str, known: CarpHost) -> Iterator[str]:
    if not known.is_allowed:
        yield f"{host} takes no part in CARP: net.inet.carp.allow is 0"
    if known.demotion:
        yield (
            f"{host} has demoted itself by {known.demotion}: an interface is down, or pfsync has "
            "not synchronised yet"
        )
    for group in known.groups:
        if group.state not in ("MASTER", "BACKUP"):
            yield f"{host}: {group.interface} vhid {group.vhid} is {group.state}: check its link"
    states = {group.state for group in known.groups} & {"MASTER", "BACKUP"}
    if len(states) > 1:
        masters = [f"vhid {each.vhid}" for each in known.groups if each.state == "MASTER"]
        yield (
            f"{host} is master of {', '.join(masters)} only: traffic leaves through one host and "
            "returns through the other, unless you share the load so on purpose"
        )


def _list_pair_findings(pair: Pair) -> Iterator[str]:
    one, other = pair
    states = {
        host: {group.vhid: group.state for group in known.groups} for host, known in pair.items()
    }
    for vhid in sorted(states[one].keys() | states[other].keys()):
        alone = [host for host in pair if vhid not in states[host]]
        masters = [host for host in pair if states[host].get(vhid) == "MASTER"]
        if alone:
            yield f"{alone[0]} has no vhid {vhid}"
        elif len(masters) > 1:
            yield (
                f"{one} and {other} are both master of vhid {vhid}: they do not receive each "
                "other's advertisements"
            )
        elif not masters:
            yield f"vhid {vhid} has no master: neither host answers for its addresses"


def _format_row(host: str, group: CarpGroup) -> tuple[str, ...]:
    return (
        host,
        group.interface,
        str(group.vhid),
        group.state,
        str(group.skew),
        ", ".join(group.addresses) or "-",
    )
