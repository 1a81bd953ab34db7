"""Granting: an owner's standing approval of somebody's requests: so many an hour, for a while."""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal, get_args, get_origin

from bot.audit import change_log
from bot.db import grants
from bot.db.database import Transaction
from bot.db.grants import Grant, NewGrant
from bot.model.times import format_deadline
from bot.policy import Policy, Request
from bot.workflow.approvals import NotAllowed
from bot.workflow.context import WorkflowContext
from bot.workflow.grant_rules import why_grant_unfit
from bot.workflow.requests import InvalidRequest, NoSuchPerson, fold_reason
from connectors.command import InvisibleCharacterError, quote_text, refuse_invisible
from runbooks import AnyRunbook
from runbooks._catalogue import get_kind

LONGEST_DAYS = 30
MOST_AN_HOUR = 100
_DAY = 86400 * 1_000_000
_LONGEST = 100


def create_grant(
    parts: WorkflowContext, wanted: NewGrant, *, giver: str, door: str, reason: str = ""
) -> Grant:
    """Let somebody have something done without an approval each time. The giver is an owner."""
    policy = parts.policies.current()
    _check(parts, policy, wanted, giver)
    with parts.database.transaction() as tx:
        if not tx.now < wanted.ends <= tx.now + LONGEST_DAYS * _DAY:
            raise InvalidRequest(f"a grant ends within {LONGEST_DAYS} days: choose another time")
        _check_hosts(policy, wanted, giver, tx.now)
        made = grants.add_grant(tx, wanted, giver=giver, reason=fold_reason(reason))
        _log(tx, "granted", made, giver, door)
    return made


def revoke_grant(parts: WorkflowContext, number: int, *, person: str, door: str) -> Grant:
    """End a grant at once. person: its giver, another owner, or who has it; "" at the machine."""
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        found = grants.lock_grant(tx, number)
        if person and person not in {found.giver, found.person} | _owners(policy, found):
            giver, holder = map(policy.name_person, (found.giver, found.person))
            raise NotAllowed(f"only {giver}, other owners and {holder} can end it")
        if not found.holds(tx.now):
            raise InvalidRequest(f"grant {number} has ended already")
        grants.revoke_grant(tx, number)
        _log(tx, "grant revoked", found, person, door)
        return replace(found, revoked=tx.now)


def _check(parts: WorkflowContext, policy: Policy, wanted: NewGrant, giver: str) -> None:
    if policy.person(wanted.person) is None:
        raise NoSuchPerson(wanted.person, policy.household.people)
    if wanted.person == giver:
        raise NotAllowed("nobody grants themselves anything: another owner can")
    if not 1 <= wanted.an_hour <= MOST_AN_HOUR:
        raise InvalidRequest(f"say how many an hour: from 1 to {MOST_AN_HOUR}")
    runbook = parts.runbooks.get(wanted.words)
    if runbook is None or get_kind(runbook) != "change":
        raise InvalidRequest(f"{wanted.words} is not a change: it needs no grant")
    if not runbook.undo:
        raise InvalidRequest(f"{wanted.words} cannot be undone, so each time takes an approval")
    _check_patterns(runbook, wanted)


def _check_patterns(runbook: type[AnyRunbook], wanted: NewGrant) -> None:
    for text in (wanted.hosts, *wanted.values.values()):
        try:
            refuse_invisible(text)
        except InvisibleCharacterError as unclean:
            raise InvalidRequest(f"{quote_text(text)} {unclean}") from None
        if not 1 <= len(text) <= _LONGEST:
            raise InvalidRequest(f"write each pattern in 1 to {_LONGEST} characters")
    fields = [name for name in runbook.model_fields if name != "host"]
    for name, pattern in wanted.values.items():
        if name not in fields:
            raise InvalidRequest(f"{wanted.words} has no {name}: it has {', '.join(fields)}")
        choices = _choices(runbook.model_fields[name].annotation)
        if choices and not any(fnmatchcase(choice, pattern) for choice in choices):
            raise InvalidRequest(f"{name}={pattern} never fits: it is one of {', '.join(choices)}")


def _choices(annotation: object) -> list[str]:
    return [str(one) for one in get_args(annotation)] if get_origin(annotation) is Literal else []


def _check_hosts(policy: Policy, wanted: NewGrant, giver: str, now: int) -> None:
    """Refuse what the giver could not approve on every host that is meant now."""
    meant = [host.name for host in policy.inventory if fnmatchcase(host.name, wanted.hosts)]
    if not meant:
        raise InvalidRequest(
            f"no host is meant by {quote_text(wanted.hosts)}: name one, or several as in lb*"
        )
    needless, who = True, policy.name_person(wanted.person)
    for host in sorted(meant):
        request = Request(
            runbook=wanted.words,
            kind="change",
            host=host,
            door="slack",
            asked_by=wanted.person,
            now=now,
        )
        ruling = policy.may_ask(request)
        if not ruling.allowed:
            why = "; ".join(ruling.says) or "no rule of the policy allows it"
            raise InvalidRequest(f"{who} may not ask for {wanted.words} on {host}: {why}")
        needless = needless and not ruling.approvals
        why = why_grant_unfit(policy, request, ruling, giver) if ruling.approvals else ""
        if why:
            raise NotAllowed(f"on {host} a grant of yours {why}")
    if needless:
        raise InvalidRequest(f"{who} needs no approval for that: there is nothing to grant")


def _owners(policy: Policy, found: Grant) -> set[str]:
    meant = [host.name for host in policy.inventory if fnmatchcase(host.name, found.hosts)]
    return {owner for host in meant for owner in policy.area_of(host).owners}


def _log(tx: Transaction, what: str, made: Grant, person: str, door: str) -> None:
    change_log.append_entry(
        tx,
        what,
        person=person,
        grant=made.id,
        giver=made.giver,
        to=made.person,
        what=made.what,
        an_hour=made.an_hour,
        until=format_deadline(made.ends),
        door=door,
        reason=made.reason,
    )
