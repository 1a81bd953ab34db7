"""Standing grants: approvals in advance, for a number of runs an hour.

A grant replaces an approval and nothing else: the rules about requesters, freezes, plan and digest
apply as always. Irreversible changes, and changes that require a second factor or several
approvals, cannot be granted.
"""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal, get_args, get_origin

from bot.audit import change_log, events
from bot.audit.event_type import Event
from bot.audit.grant_evidence import has_all_uses_counted, is_grant_logged
from bot.db import grants
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.model.errors import InvalidRequestError, NoSuchPersonError, NotAllowed
from bot.model.grant_words import NewGrant
from bot.model.run import Run
from bot.model.times import DAY, format_deadline
from bot.policy import Policy, PolicyRequest, Ruling
from bot.queries.standing_grants import find_grant, get_grant_obstacle
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import shorten_reason
from connectors.visible_text import InvisibleCharacterError, quote_text, refuse_invisible
from runbooks import AnyRunbook
from runbooks._catalogue import get_kind

MAX_DAYS = 30
MAX_PER_HOUR = 100
_MAX_PATTERN_LENGTH = 100


class GrantActions:
    """What people may do about standing grants.

    Methods take the source of the request (slack, web or cli), and raise InvalidRequestError and
    NotAllowed.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def create_grant(
        self, new_grant: NewGrant, *, granted_by: str, reason: str = "", source: str
    ) -> Grant:
        """Create a grant, with which a person's runs need no approval. *granted_by*: an owner."""
        policy = self._context.policies.get_policy()
        _check_grant(self._context, policy, new_grant, granted_by)
        with self._context.database.transaction() as tx:
            if not tx.now < new_grant.ends_at <= tx.now + MAX_DAYS * DAY:
                raise InvalidRequestError(
                    f"a grant ends within {MAX_DAYS} days from now: choose another end"
                )
            _check_hosts(policy, new_grant, granted_by, tx.now)
            made = grants.add_grant(tx, new_grant, giver=granted_by, reason=shorten_reason(reason))
            _log_grant(tx, events.GrantCreated, made, granted_by, source)
        return made

    def revoke_grant(self, number: int, *, person: str, source: str) -> Grant:
        """Revoke a grant.

        person: who granted it, another owner or its holder; "" on the command line.
        """
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            found = grants.lock_grant(tx, number)
            able = {found.granted_by, found.person} | _list_owners(policy, found)
            if person and person not in able:
                giver, holder = map(policy.get_person_name, (found.granted_by, found.person))
                raise NotAllowed(f"only {giver}, other owners and {holder} can revoke it")
            if not found.holds(tx.now):
                raise InvalidRequestError(f"grant {number} has ended already")
            grants.revoke_grant(tx, number)
            _log_grant(tx, events.GrantRevoked, found, person, source)
            return replace(found, revoked_at=tx.now)


def _check_grant(
    context: WorkflowContext, policy: Policy, new_grant: NewGrant, granted_by: str
) -> None:
    if policy.find_person(new_grant.person) is None:
        raise NoSuchPersonError(new_grant.person, policy.organisation.people)
    if new_grant.person == granted_by:
        raise NotAllowed("you cannot grant yourself anything: ask another owner")
    if not 1 <= new_grant.per_hour <= MAX_PER_HOUR:
        raise InvalidRequestError(f"enter how many runs an hour: from 1 to {MAX_PER_HOUR}")
    runbook = context.runbooks.get(new_grant.runbook)
    if runbook is None or get_kind(runbook) != "change":
        raise InvalidRequestError(f"{new_grant.runbook} is not a change and needs no grant")
    if not runbook.undo:
        raise InvalidRequestError(
            f"{new_grant.runbook} cannot be undone, so each run needs an approval"
        )
    _check_patterns(runbook, new_grant)


def _check_patterns(runbook: type[AnyRunbook], new_grant: NewGrant) -> None:
    for text in (new_grant.hosts, *new_grant.values.values()):
        try:
            refuse_invisible(text)
        except InvisibleCharacterError as error:
            raise InvalidRequestError(f"{quote_text(text)} {error}") from None
        if not 1 <= len(text) <= _MAX_PATTERN_LENGTH:
            raise InvalidRequestError(
                f"each pattern has 1 to {_MAX_PATTERN_LENGTH} characters: change its length"
            )
    fields = [name for name in runbook.model_fields if name != "host"]
    for name, pattern in new_grant.values.items():
        if name not in fields:
            raise InvalidRequestError(
                f"{new_grant.runbook} has no field {name}: use {', '.join(fields)}"
            )
        choices = _list_choices(runbook.model_fields[name].annotation)
        if choices and not any(fnmatchcase(choice, pattern) for choice in choices):
            raise InvalidRequestError(
                f"{name}={pattern} matches no value: use one of {', '.join(choices)}"
            )


def _list_choices(annotation: object) -> list[str]:
    return [str(one) for one in get_args(annotation)] if get_origin(annotation) is Literal else []


def _check_hosts(policy: Policy, new_grant: NewGrant, granted_by: str, now: int) -> None:
    """Refuse a grant that *granted_by* could not approve on every matching host."""
    matching = [host.name for host in policy.inventory if fnmatchcase(host.name, new_grant.hosts)]
    if not matching:
        raise InvalidRequestError(
            f"no host matches {quote_text(new_grant.hosts)}: name a host, or use a pattern "
            "such as lb*"
        )
    is_needless, who = True, policy.get_person_name(new_grant.person)
    for host in sorted(matching):
        request = PolicyRequest(
            runbook=new_grant.runbook,
            kind="change",
            host=host,
            source="slack",
            requested_by=new_grant.person,
            now=now,
        )
        ruling = policy.get_request_ruling(request)
        if not ruling.allowed:
            raise InvalidRequestError(
                f"{who} may not request {new_grant.runbook} on {host}: {ruling.refusal_reason}"
            )
        is_needless = is_needless and not ruling.required_approvals
        why = (
            get_grant_obstacle(policy, request, ruling, granted_by)
            if ruling.required_approvals
            else ""
        )
        if why:
            raise NotAllowed(f"your grant for {host} {why}")
    if is_needless:
        raise InvalidRequestError(f"{who} needs no approval for that, so no grant is needed")


def _list_owners(policy: Policy, grant: Grant) -> set[str]:
    matching = [host.name for host in policy.inventory if fnmatchcase(host.name, grant.hosts)]
    return {owner for host in matching for owner in policy.get_area(host).owners}


def _log_grant(
    tx: Transaction,
    event_type: type[events.GrantCreated | events.GrantRevoked],
    grant: Grant,
    person: str,
    source: str,
) -> None:
    change_log.append_entry(tx, _build_event(event_type, grant, source), person=person)


def revoke_grants_of(tx: Transaction, person: str, source: str) -> list[Event]:
    """Revoke the grants by and to a person; return what to log.

    The caller logs it, once it has locked everything else.
    """
    active = sorted(grants.list_newest_active_grants(tx, person), key=lambda one: one.id)
    for one in active:
        grants.lock_grant(tx, one.id)
        grants.revoke_grant(tx, one.id)
    return [_build_event(events.GrantRevoked, one, source) for one in active]


def _build_event(
    event_type: type[events.GrantCreated | events.GrantRevoked], grant: Grant, source: str
) -> Event:
    return event_type(
        grant=grant.id,
        granted_by=grant.granted_by,
        granted_to=grant.person,
        what=grant.what,
        per_hour=grant.per_hour,
        until=format_deadline(grant.ends_at),
        source=source,
        reason=grant.reason,
    )


def choose_grant(
    tx: Transaction, policy: Policy, run: Run, request: PolicyRequest, ruling: Ruling
) -> tuple[Grant | None, str]:
    """Return the grant that replaces the approval of a planned run, or why none does.

    The grant is locked until this transaction ends. Call this before writing to the log: a
    transaction that holds the log must not wait for other locks.
    """
    return find_grant(tx, policy, run, request, ruling, read_grant=grants.lock_grant)


def get_grant_refusal(
    tx: Transaction, policy: Policy, run: Run, request: PolicyRequest, ruling: Ruling
) -> str:
    """Return why the run's grant does not approve it now; "" if it does.

    request: the input of the rules, with the time that counts for this run.
    """
    grant = grants.lock_grant(tx, run.grant_id or 0)
    why = (
        "was revoked"
        if grant.revoked_at is not None
        else "has ended"
        if not grant.holds(request.now)
        else "does not cover this run"
        if not grant.covers(run)
        else "is not confirmed by the change log"
        if not is_grant_logged(tx, grant)
        else "was used more often than the database lists"
        if not has_all_uses_counted(tx, grant, except_run=run.id)
        else "has reached its limit this hour"
        if grants.count_used(tx, grant.id, except_run=run.id) >= grant.per_hour
        else get_grant_obstacle(policy, request, ruling, grant.granted_by)
    )
    return f"Grant {grant.id} {why}, so the run needs an approval" if why else ""


def use_grant(tx: Transaction, run: Run) -> None:
    """Count the run against its grant, in the transaction that starts it."""
    grant = grants.lock_grant(tx, run.grant_id or 0)
    grants.record_use(tx, grant.id, run.id)
    change_log.append_entry(
        tx,
        events.GrantUsed(
            grant=grant.id,
            granted_by=grant.granted_by,
            uses=grants.count_used(tx, grant.id),
            per_hour=grant.per_hour,
        ),
        run=run,
        person=run.requested_by,
    )
