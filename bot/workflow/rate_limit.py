"""Limit requests for each minute. Approvals and denials are never limited."""

from dataclasses import dataclass

from bot.audit import change_log, events
from bot.db import request_rate
from bot.db.database import Transaction
from bot.db.runs import NewRun
from bot.model.times import MINUTE


@dataclass(frozen=True)
class RateLimits:
    """The most requests within a minute: by one person, for one runbook, and in total."""

    per_person: int
    per_runbook: int
    in_total: int

    @staticmethod
    def from_person_limit(per_person: int) -> "RateLimits":
        """Return limits that leave room for others when one person reaches theirs."""
        return RateLimits(per_person, 3 * per_person, 10 * per_person)


def get_rate_limit_refusal(tx: Transaction, limits: RateLimits | None, new_run: NewRun) -> str:
    """Return which limit the request exceeds, and log that once a minute; "" if none."""
    if limits is None:
        return ""
    since = tx.now - MINUTE
    recent = request_rate.count_requests(
        tx, person=new_run.requested_by, words=new_run.runbook, since=since
    )
    if recent.by_person >= limits.per_person:
        why = f"you made {recent.by_person} requests within a minute"
    elif recent.for_runbook >= limits.per_runbook:
        why = f"{new_run.runbook} was requested {recent.for_runbook} times within a minute"
    elif recent.in_all >= limits.in_total:
        why = f"{recent.in_all} requests were made within a minute"
    else:
        return ""
    if not any(entry.at > since for entry in _list_logged_refusals(tx, new_run.requested_by)):
        change_log.append_entry(
            tx,
            events.RateLimited(runbook=new_run.runbook, reason=why),
            person=new_run.requested_by,
            host=new_run.host,
        )
    return f"{why}: wait a minute, then try again. Approvals and denials are not limited"


def _list_logged_refusals(tx: Transaction, person: str) -> list[change_log.Entry]:
    return change_log.list_newest_entries_of_kind(
        tx, events.RateLimited.kind, person=person, limit=1
    )
