from collections.abc import Iterator

from connectors import conntrack
from connectors.command import QueryRunner
from connectors.conntrack import Conntrack
from runbooks import Check, Host, Report

_NEARLY_FULL = 0.8
_LONG_CHAINS = 8


class ConntrackCheck(Check[Conntrack], words="conntrack check", example="lb1"):
    """See how near a host is to the most connections that its firewall can keep track of."""

    host: Host

    def read(self, run_query: QueryRunner) -> Conntrack:
        return run_query(self.host, conntrack.query_conntrack())

    def report(self, found: Conntrack) -> Report:
        findings = [*_list_findings(found)]
        return Report(
            f"{self.host} keeps track of {found.count:,} connections of at most "
            f"{found.maximum:,} ({found.usage:.0%})",
            healthy=not findings,
            findings=findings,
        )


def _list_findings(found: Conntrack) -> Iterator[str]:
    if found.usage >= _NEARLY_FULL:
        yield (
            f"{found.usage:.0%} of the limit is used: at 100 % new connections get no answer, and "
            "only the kernel's log says why. `conntrack set` raises it"
        )
    if found.dropped:
        yield (
            f"{found.dropped:,} packets of new connections were dropped since the host started, "
            "as there was no place for them"
        )
    if found.early_dropped:
        yield f"{found.early_dropped:,} connections were forgotten early to make place for others"
    if found.buckets and found.maximum > _LONG_CHAINS * found.buckets:
        yield (
            f"the hash table has only {found.buckets:,} buckets for {found.maximum:,} "
            "connections, which makes each packet slower: nf_conntrack's hashsize sets them"
        )
