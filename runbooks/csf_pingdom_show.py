from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors import csf, csf_list, pingdom
from connectors.command import QueryRunner
from connectors.csf import Firewall
from connectors.errors import ParseError
from connectors.pingdom import ProbeFeed
from connectors.public_addresses import Address
from runbooks import Check, Host, Report, Table, make_host_field

_DOMAIN = "pingdom.com"


@dataclass(frozen=True)
class ProbeState:
    """Whom the host lets in, and whom it should."""

    firewall: Firewall
    feed: ProbeFeed


class ShowPingdom(Check[ProbeState], words="csf pingdom show", example="web1"):
    """See whether csf lets in all of Pingdom's probes, and nobody that was one once."""

    host: Host = make_host_field("csf")

    def read(self, run_query: QueryRunner) -> ProbeState:
        feed = run_query(self.host, pingdom.query_feed())
        return ProbeState(run_query(self.host, csf.query_firewall()), feed)

    def report(self, probes: ProbeState) -> Report:
        firewall, feed = probes.firewall, probes.feed
        wanted = frozenset(filter(firewall.can_filter, feed.addresses))
        let_in = frozenset(filter(firewall.is_allowed, wanted))
        try:
            kept, strange = csf_list.parse_list(firewall.own_list or ""), ""
        except ParseError as trouble:
            kept, strange = frozenset[Address](), str(trouble)
        rows = list(_list_rows(firewall, kept - feed.list_kept_addresses(kept), wanted))
        findings = [
            *(f"skipped in Pingdom's feed: {why}" for why in feed.skip_reasons),
            *([strange] if strange else ()),
            *_list_obstacles(firewall),
            *(() if firewall.missing_tables else self._list_refresh_findings(rows)),
            *_list_risks(firewall),
        ]
        if firewall.missing_tables:
            return Report(
                f"the firewall of {self.host} is off: csf's rules are not loaded",
                healthy=False,
                findings=[self._format_off(firewall), *findings],
            )
        return Report(
            f"{self.host} lets in {len(let_in)} of {len(wanted)} addresses of Pingdom's probes",
            healthy=not findings,
            findings=findings,
            table=Table(("Address", "Pingdom", "Keyturn's list", "Firewall"), rows)
            if rows
            else None,
        )

    def _format_off(self, firewall: Firewall) -> str:
        return (
            f"csf's rules are not loaded into {firewall.missing_tables}, so nothing is kept "
            "out: find out "
            "who flushed them and why. csf -r on the host turns the firewall on again, and so "
            f"does csf pingdom refresh {self.host} start=firewall"
        )

    def _list_refresh_findings(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        if rows:
            yield (
                f"{len(rows)} addresses are not as they should be: "
                f"csf pingdom refresh {self.host} sees to it"
            )


def _list_rows(
    firewall: Firewall, kept: frozenset[Address], wanted: frozenset[Address]
) -> Iterator[Sequence[str]]:
    """Yield a row for each address that is not in all three places."""
    for address in sorted(kept | wanted, key=lambda each: (each.version, int(each))):
        lets_in = firewall.is_allowed(address)
        if not (address in wanted and address in kept and lets_in):
            yield (
                str(address),
                "active" if address in wanted else "not a probe",
                "on it" if address in kept else "missing",
                "lets it in" if lets_in else "does not",
            )


def _list_obstacles(firewall: Firewall) -> Iterator[str]:
    if not firewall.is_enabled:
        yield "csf is disabled: enable it with csf -e"
    if firewall.is_testing:
        yield (
            "csf is in its TESTING mode, which takes all rules away every five minutes: "
            'set TESTING = "0" in csf.conf'
        )
    if firewall.own_list is None or not firewall.is_included:
        yield (
            f"csf does not read Keyturn's list: csf.allow lacks the line “{firewall.include_line}”"
        )
    if firewall.is_on_probation:
        yield "a list is on probation: unless it is kept, the one of before comes back in minutes"


def _list_risks(firewall: Firewall) -> Iterator[str]:
    for everybody in ("0.0.0.0/0", "::/0"):
        if everybody in firewall.allow:
            yield f"csf.allow holds {everybody}, which lets in everybody: take it out"
    if source := firewall.settings.get("GLOBAL_ALLOW"):
        yield (
            f"csf lets in whoever {source} lists (GLOBAL_ALLOW): whoever can write there commands "
            "this firewall: empty it, and let changes be pushed"
        )
    taken = firewall.common_domains
    if taken is not None and _DOMAIN not in {name.strip().lower() for name in taken}:
        yield (
            f"/var/cpanel/commondomains does not list {_DOMAIN}: a customer could set the name up "
            "on this host, which would then take theirs for Pingdom: add it there"
        )
