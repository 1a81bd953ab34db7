"""What the weekly digest says of waits: how long, and what could be self-service."""

from collections.abc import Iterator

from bot.db.database import Transaction
from bot.features.wait_report.report import build_wait_report
from bot.policy import Policy
from bot.policy.explain import format_wait
from bot.queries.digest import DigestSection

_DAYS, _MAX_RUNS = 7, 2000


def _list_waits(tx: Transaction, policy: Policy, owned: set[str]) -> Iterator[str]:
    titles = {policy.organisation.areas[name].title for name in owned}
    for row in build_wait_report(tx, policy, days=_DAYS, limit=_MAX_RUNS).areas:
        if row.name in titles:
            wait = f"; usual wait {format_wait(row.median)}" if row.median else ""
            yield (
                f"{row.name}: {row.requested} requested, {row.approved} approved, "
                f"{row.denied} denied, {row.expired} expired, {row.pending} pending{wait}"
            )


def _list_suggestions(tx: Transaction, policy: Policy, owned: set[str]) -> Iterator[str]:
    for one in build_wait_report(tx, policy, days=_DAYS, limit=_MAX_RUNS).suggestions:
        if one.area in owned:
            yield f"{one.runbook} in {one.area_title}: {one.requested} requests, all approved"


DIGEST = (
    DigestSection(f"Approvals in {_DAYS} days", _list_waits),
    DigestSection("Could be self-service: see the approval report", _list_suggestions),
)
