"""Ban and unban people.

To the policy, a banned person does not exist: no requests, approvals, sessions or
rights. Bans are rows in the database, so that every process sees them. The gate reads them before
every step.
"""

from bot.audit import change_log, events
from bot.auth import sessions, tokens
from bot.db import stops
from bot.db.stops import Ban
from bot.model.errors import InvalidRequestError, NoSuchPersonError, TooLate
from bot.queries.banned_people import PolicyWithoutBanned
from bot.workflow.context import WorkflowContext
from bot.workflow.stopping import check_order_allowed, check_stop_reason


def ban_person(
    context: WorkflowContext,
    person: str,
    *,
    banned_by: str,
    reason: str,
    session: str = "",
    requires_factor: bool = True,
) -> None:
    """Ban a person: end their sessions and revoke their tokens.

    Args:
        session: The web session, in which a second factor may have been entered.
        requires_factor: False on the command line, where none can be entered.

    Raises NotAllowed, StepUpRequired, TooLate and InvalidRequestError.
    """
    reason = check_stop_reason(reason)
    check_order_allowed(
        context, banned_by, "ban", session=session, requires_factor=requires_factor
    )
    if banned_by == person:
        raise InvalidRequestError("you cannot ban yourself: ask someone else to do it")
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        if person in stops.list_banned_people(tx):
            raise TooLate(f"{policy.get_person_name(person)} is banned already")
        if policy.find_person(person) is None:
            raise NoSuchPersonError(person)
        stops.add_ban(tx, person, by=banned_by, why=reason)
        sessions.end_all_sessions(tx, person)
        # Tokens may be on a stolen laptop, so they stay revoked after the ban is lifted.
        tokens.revoke_all_tokens(tx, person)
        change_log.append_entry(
            tx, events.Banned(banned_person=person, reason=reason), person=banned_by
        )
    _forget_banned_people(context)


def unban_person(
    context: WorkflowContext, person: str, *, unbanned_by: str, reason: str, session: str = ""
) -> None:
    """Lift a ban. The person who imposed it cannot. session, raises: as for ban_person()."""
    reason = check_stop_reason(reason)
    ban = _get_ban(context, person)
    check_order_allowed(
        context, unbanned_by, "resume", is_own=ban.banned_by == unbanned_by, session=session
    )
    with context.database.transaction() as tx:
        if not stops.remove_ban(tx, person):
            name = context.policies.get_policy().get_person_name(person)
            raise TooLate(f"someone else has just unbanned {name}")
        change_log.append_entry(
            tx,
            events.BanLifted(banned_person=person, reason=reason, banned_by=ban.banned_by),
            person=unbanned_by,
        )
    _forget_banned_people(context)


def _get_ban(context: WorkflowContext, person: str) -> Ban:
    with context.database.reading() as tx:
        found = next((one for one in stops.list_bans(tx) if one.person == person), None)
    if found is None:
        raise TooLate(f"{context.policies.get_policy().get_person_name(person)} is not banned")
    return found


def _forget_banned_people(context: WorkflowContext) -> None:
    if isinstance(context.policies, PolicyWithoutBanned):
        context.policies.forget_banned_people()
