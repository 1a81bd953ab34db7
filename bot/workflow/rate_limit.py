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

    person: int
    runbook: int
    everybody: int

    @staticmethod
    def of(person: int) -> "RateLimits":
        """Return the pace that leaves room for others, however much one person asks for."""
        return RateLimits(person, 3 * person, 10 * person)


def why_too_many(tx: Transaction, most: RateLimits | None, new: NewRun) -> str:
    """Say why this request comes too fast, and note it once a minute; "" if it does not."""
    if most is None:
        return ""
    since = tx.now - _MINUTE
    lately = request_rate.count_requests(tx, person=new.asked_by, words=new.words, since=since)
    if lately.by_person >= most.person:
        why = f"you have asked for {lately.by_person} things within a minute"
    elif lately.for_runbook >= most.runbook:
        why = f"{new.words} was asked for {lately.for_runbook} times within a minute"
    elif lately.in_all >= most.everybody:
        why = f"{lately.in_all} things were asked for within a minute"
    else:
        return ""
    if not any(entry.at > since for entry in _noted(tx, new.asked_by)):
        change_log.append_entry(
            tx, "asked too fast", person=new.asked_by, host=new.host, runbook=new.words, why=why
        )
    return f"{why}: wait a little. Approvals and denials go through as ever"


def _noted(tx: Transaction, person: str) -> list[change_log.Entry]:
    return change_log.list_latest_of_kind(tx, "asked too fast", person=person, most=1)
