"""Pacing: how much may be asked for within a minute; approvals and denials are never held up."""

from dataclasses import dataclass

from bot.audit import change_log
from bot.db import request_rate
from bot.db.database import Transaction
from bot.db.runs import NewRun

_MINUTE = 60 * 1_000_000


@dataclass(frozen=True)
class RateLimits:
    """The most requests within a minute: by one person, for one runbook, and altogether."""

    per_person: int
    per_runbook: int
    in_total: int

    @staticmethod
    def from_person_limit(per_person: int) -> "RateLimits":
        """Return the pace that leaves room for others, however much one person asks for."""
        return RateLimits(per_person, 3 * per_person, 10 * per_person)


def get_rate_limit_refusal(tx: Transaction, limits: RateLimits | None, new_run: NewRun) -> str:
    """Say why this request comes too fast, and note it once a minute; "" if it does not."""
    if limits is None:
        return ""
    since = tx.now - _MINUTE
    lately = request_rate.count_requests(
        tx, person=new_run.requested_by, words=new_run.runbook, since=since
    )
    if lately.by_person >= limits.per_person:
        why = f"you have asked for {lately.by_person} things within a minute"
    elif lately.for_runbook >= limits.per_runbook:
        why = f"{new_run.runbook} was asked for {lately.for_runbook} times within a minute"
    elif lately.in_all >= limits.in_total:
        why = f"{lately.in_all} things were asked for within a minute"
    else:
        return ""
    if not any(entry.at > since for entry in _list_logged_refusals(tx, new_run.requested_by)):
        change_log.append_entry(
            tx,
            "rate limited",
            person=new_run.requested_by,
            host=new_run.host,
            runbook=new_run.runbook,
            reason=why,
        )
    return f"{why}: wait a little. Approvals and denials go through as ever"


def _list_logged_refusals(tx: Transaction, person: str) -> list[change_log.Entry]:
    return change_log.list_newest_entries_of_kind(tx, "rate limited", person=person, limit=1)
