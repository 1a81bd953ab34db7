from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors import rate_limit
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.rate_limit import LimitCounts, RateLimits, RateZone
from runbooks import Check, Host, PartReader, Report, Table


@dataclass(frozen=True)
class RateLimitState:
    """nginx's limits, and the requests that they affected."""

    limits: RateLimits
    counts: LimitCounts | None
    """None where no log was written, or where the logs could not be read."""
    errors: Sequence[str] = ()
    """What could not be read, as sentences."""


_MISSING = (
    "nginx's configuration has no limit_req_zone, so no rate is limited: define a zone and apply "
    "it with limit_req"
)


class RatelimitCheck(
    Check[RateLimitState],
    words="ratelimit check",
    example="web1",
    columns=("zone", "key", "rate", "memory", "applied", "refused", "delayed"),
):
    """Show nginx's limits of request rates, and how many requests it refused in a day."""

    host: Host

    def read(self, run_query: QueryRunner) -> RateLimitState:
        limits = run_query(self.host, rate_limit.query_limits())
        parts = PartReader(run_query, self.host)
        counts = parts.read("nginx's error logs", rate_limit.query_counts(), None)
        return RateLimitState(limits, counts, [*parts.get_errors().values()])

    def report(self, limited: RateLimitState) -> Report:
        limits, counts = limited.limits, limited.counts
        findings = [*limited.errors, *_list_findings(limited)]
        if not limits.zones:
            return Report.from_findings(
                f"nginx on {self.host} has no request limits", [_MISSING, *findings]
            )
        return Report.from_findings(
            f"nginx on {self.host} has {format_count(len(limits.zones), 'rate limit')}"
            f"{_format_refused(limits, counts)}",
            findings,
            table=Table(
                self.columns,
                [_format_row(zone, limited) for zone in limits.zones],
            ),
        )


def _format_refused(limits: RateLimits, counts: LimitCounts | None) -> str:
    if counts is None:
        return ", and it is unknown how many requests it refused"
    refused = sum(counts.refused.values())
    return f" and refused {refused:,} requests with {limits.status} in the logs of the last day"


def _format_row(zone: RateZone, limited: RateLimitState) -> tuple[str, ...]:
    counts = limited.counts
    applied = [
        f"burst {use.burst}{' nodelay' if use.nodelay else ''}"
        for use in limited.limits.uses
        if use.zone == zone.name
    ]
    return (
        zone.name,
        zone.key,
        zone.rate,
        zone.size,
        ", ".join(applied) or "nowhere",
        f"{counts.refused.get(zone.name, 0):,}" if counts else "unknown",
        f"{counts.delayed.get(zone.name, 0):,}" if counts else "unknown",
    )


def _list_findings(limited: RateLimitState) -> Iterator[str]:
    limits, counts = limited.limits, limited.counts
    names = {zone.name for zone in limits.zones}
    used = {use.zone for use in limits.uses}
    for name in sorted(names - used):
        yield f"the zone {name} is defined but not applied"
    for use in limits.uses:
        if use.burst and not use.nodelay:
            yield (
                f"{use.zone} delays a burst of {use.burst} requests, which makes pages with many "
                "resources slow: use nodelay"
            )
    if limits.dry_run:
        yield "limit_req_dry_run is on: requests over a limit are not refused"
    if limits.status == 503 and limits.uses:
        yield (
            "refused requests get 503, like those of a broken server: set limit_req_status 429 "
            "so that clients and monitoring can distinguish them"
        )
    if counts is None and limits.uses and not limited.errors:
        yield "no error log was written in the last day: set nginx.error_logs in the inventory"
