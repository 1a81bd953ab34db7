from collections.abc import Iterator

from connectors import conntrack
from connectors.command import QueryRunner
from connectors.conntrack import Conntrack
from runbooks import Check, Host, Report

_NEARLY_FULL = 0.8
_LONG_CHAINS = 8


class ConntrackCheck(
    Check[Conntrack],
    words="conntrack check",
    also_called=("connection table full",),
    example="lb1",
):
    """Check how close a host is to the limit of connections that its firewall tracks."""

    host: Host

    def read(self, run_query: QueryRunner) -> Conntrack:
        return run_query(self.host, conntrack.query_conntrack())

    def report(self, state: Conntrack) -> Report:
        return Report.from_findings(
            f"{self.host} tracks {state.count:,} of at most {state.maximum:,} connections "
            f"({state.usage:.0%})",
            _list_findings(state),
        )


def _list_findings(state: Conntrack) -> Iterator[str]:
    if state.usage >= _NEARLY_FULL:
        yield (
            f"{state.usage:.0%} of the limit is used: at 100 % new connections are dropped, and "
            "only the kernel's log shows it. Raise the limit with `conntrack set`"
        )
    if state.dropped:
        yield (
            f"{state.dropped:,} packets of new connections were dropped since the host started, "
            "because the table was full"
        )
    if state.early_dropped:
        yield f"{state.early_dropped:,} connections were removed early to make room for others"
    if state.buckets and state.maximum > _LONG_CHAINS * state.buckets:
        yield (
            f"the hash table has only {state.buckets:,} buckets for {state.maximum:,} "
            "connections, which slows down each packet: raise nf_conntrack's hashsize"
        )
