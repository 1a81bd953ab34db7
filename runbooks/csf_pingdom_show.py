from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors import csf, csf_list, pingdom
from connectors.command import QueryRunner
from connectors.csf import Firewall
from connectors.errors import HostError, ParseError
from connectors.pingdom import ProbeFeed
from connectors.probation import NOT_ARMED, ProbationStatus, query_probation
from connectors.public_addresses import Address
from runbooks import Check, Host, Report, Table, make_host_field

_DOMAIN = "pingdom.com"


@dataclass(frozen=True)
class ProbeState:
    """The host's firewall, and Pingdom's probes."""

    firewall: Firewall
    feed: ProbeFeed | HostError
    """Or why it could not be read."""
    probation: ProbationStatus = NOT_ARMED


class ShowPingdom(
    Check[ProbeState],
    words="csf pingdom show",
    example="web1",
    columns=("Address", "Pingdom", "Keyturn's list", "Firewall"),
):
    """Check that csf allows all of Pingdom's probes, and no former ones."""

    host: Host = make_host_field("csf")

    def read(self, run_query: QueryRunner) -> ProbeState:
        firewall = run_query(self.host, csf.query_firewall())
        probation = run_query(self.host, query_probation("csf"))
        try:
            feed = run_query(self.host, pingdom.query_feed())
        except HostError as error:  # of the feed's server, not of the host
            return ProbeState(firewall, error, probation)
        return ProbeState(firewall, feed, probation)

    def report(self, probes: ProbeState) -> Report:
        firewall, feed = probes.firewall, probes.feed
        notes = probes.probation.list_notes("the addresses of Keyturn's list")
        if isinstance(feed, HostError):
            findings = [
                f"Pingdom's feed could not be read: {feed}",
                *_list_obstacles(firewall),
                *_list_risks(firewall),
            ]
            if firewall.missing_tables:
                return self._report_off(firewall, [*findings, *notes])
            summary = f"The addresses of Pingdom's probes on {self.host} were not compared"
            return Report.from_findings(summary, findings, notes=notes)
        return self._report_probes(firewall, feed, notes)

    def _report_probes(self, firewall: Firewall, feed: ProbeFeed, notes: Sequence[str]) -> Report:
        wanted = frozenset(filter(firewall.can_filter, feed.addresses))
        allowed = frozenset(filter(firewall.is_allowed, wanted))
        try:
            kept, list_error = csf_list.parse_list(firewall.own_list or ""), ""
        except ParseError as error:
            kept, list_error = frozenset[Address](), str(error)
        rows = list(_list_rows(firewall, kept - feed.list_kept_addresses(kept), wanted))
        findings = [
            *(f"skipped in Pingdom's feed: {reason}" for reason in feed.skip_reasons),
            *([list_error] if list_error else ()),
            *_list_obstacles(firewall),
            *(() if firewall.missing_tables else self._list_refresh_findings(rows)),
            *_list_risks(firewall),
        ]
        if firewall.missing_tables:
            return self._report_off(firewall, [*findings, *notes])
        return Report.from_findings(
            f"{self.host} allows {len(allowed)} of {len(wanted)} addresses of Pingdom's probes",
            findings,
            notes=notes,
            table=Table(self.columns, rows),
        )

    def _report_off(self, firewall: Firewall, findings: Sequence[str]) -> Report:
        return Report(
            f"The firewall of {self.host} is off: csf's rules are not loaded",
            healthy=False,
            findings=[self._format_off(firewall), *findings],
        )

    def _format_off(self, firewall: Firewall) -> str:
        return (
            f"csf's rules are not loaded into {firewall.missing_tables}, so nothing is blocked: "
            "find out who flushed them and why. To turn the firewall on again, run csf -r on the "
            f"host or request csf pingdom refresh {self.host} start=firewall"
        )

    def _list_refresh_findings(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        if rows:
            yield (
                f"{len(rows)} addresses are not up to date: "
                f"request csf pingdom refresh {self.host}"
            )


def _list_rows(
    firewall: Firewall, kept: frozenset[Address], wanted: frozenset[Address]
) -> Iterator[Sequence[str]]:
    """Yield a row for each address that is not in all three places."""
    for address in sorted(kept | wanted, key=lambda each: (each.version, int(each))):
        is_allowed = firewall.is_allowed(address)
        if not (address in wanted and address in kept and is_allowed):
            yield (
                str(address),
                "active" if address in wanted else "not a probe",
                "listed" if address in kept else "missing",
                "allowed" if is_allowed else "not allowed",
            )


def _list_obstacles(firewall: Firewall) -> Iterator[str]:
    if not firewall.is_enabled:
        yield "csf is disabled: run csf -e"
    if firewall.is_testing:
        yield (
            "csf is in TESTING mode, which removes all rules every five minutes: "
            'set TESTING = "0" in csf.conf'
        )
    if firewall.own_list is None or not firewall.is_included:
        yield (
            f"csf does not read Keyturn's list: csf.allow lacks the line “{firewall.include_line}”"
        )


def _list_risks(firewall: Firewall) -> Iterator[str]:
    for network in ("0.0.0.0/0", "::/0"):
        if network in firewall.allow:
            yield f"csf.allow has {network}, which allows everyone: remove it"
    if source := firewall.settings.get("GLOBAL_ALLOW"):
        yield (
            f"csf allows every address that {source} lists (GLOBAL_ALLOW): its owner controls "
            "this firewall. Empty GLOBAL_ALLOW, and push changes to the host instead"
        )
    taken = firewall.common_domains
    if taken is not None and _DOMAIN not in {name.strip().lower() for name in taken}:
        yield (
            f"/var/cpanel/commondomains does not list {_DOMAIN}: a customer could create that "
            "domain on this host, which would then use it as Pingdom's. Add it there"
        )
