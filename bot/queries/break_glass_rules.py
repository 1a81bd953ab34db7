"""Whether break-glass lets a run start without approvals and during a freeze."""

import logging

from bot.audit import evidence
from bot.db import break_glass, runs
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError
from bot.model.plain_text import check_line
from bot.model.run import Run
from bot.policy import Policy
from bot.queries.approval_count import build_policy_request
from bot.queries.second_factor import is_area_owner, is_factor_still_valid

log = logging.getLogger(__name__)

MIN_REASON_LENGTH = 20
_MAX_REASON_LENGTH = 1000
# Only people use break-glass: no token, schedule or script does.
_INTERACTIVE_SOURCES = frozenset({"slack", "web"})


def is_break_glass_active(tx: Transaction, policy: Policy, run: Run) -> bool:
    """Return whether break-glass is active for this run and still valid."""
    usage = break_glass.get_break_glass(tx, run.parent or run.id)
    if usage is None or not usage.open(tx.now):
        return False
    parent = run if run.parent is None else runs.get_run(tx, run.parent)
    if get_break_glass_refusal(policy, parent, usage.person, now=tx.now):
        return False
    doubt = evidence.find_mismatch_of_break_glass(tx, parent, usage)
    if doubt:
        log.critical("run %d: the change log does not confirm %s", run.id, doubt)
        return False
    return is_factor_still_valid(tx, policy, person=usage.person, digest=usage.factor)


def get_break_glass_refusal(policy: Policy, run: Run, person: str, *, now: int) -> str:
    """Return why the rules do not let this person use break-glass for the run; "" if they do."""
    if run.requested_by != person:
        name = policy.get_person_name(run.requested_by)
        return f"only {name}, who requested run {run.id}, can use break-glass for it"
    if run.kind != "change" or run.parent is not None:
        return "break-glass applies to whole requests that change something"
    request = build_policy_request(run, now=now)
    if request.source not in _INTERACTIVE_SOURCES:
        return "break-glass is for people in chat or on the web, not for tokens or schedules"
    ruling = policy.get_break_glass_ruling(request)
    if ruling.allowed:
        return ""
    notes = "; ".join(ruling.policy_notes)
    return f"the policy does not allow you break-glass for this{f': {notes}' if notes else ''}"


def can_review(policy: Policy, run: Run, person: str, *, now: int) -> bool:
    """Return whether this person may review the break-glass run of another."""
    if person == run.requested_by or policy.find_person(person) is None:
        return False
    request = build_policy_request(run, now=now)
    able = policy.get_approval_ruling(person, request, policy.get_request_ruling(request)).allowed
    return able or is_area_owner(policy, person)


def list_reviewable(tx: Transaction, policy: Policy, person: str) -> list[BreakGlass]:
    """Return the runs that this person may review, the oldest first."""
    return [
        used
        for used in break_glass.list_unreviewed(tx)
        if can_review(policy, runs.get_run(tx, used.run), person, now=tx.now)
    ]


def check_break_glass_reason(text: str) -> str:
    """Return the reason, or raise InvalidRequestError if it is too short for a reviewer."""
    reason = check_text(text)
    if len(reason) < MIN_REASON_LENGTH:
        raise InvalidRequestError(
            f"explain why it cannot wait, in at least {MIN_REASON_LENGTH} characters: "
            f"“because …”; you entered {len(reason)}"
        )
    return reason


def check_text(text: str) -> str:
    return check_line(text, name="your text", max_length=_MAX_REASON_LENGTH)
