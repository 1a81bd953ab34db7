"""What ends with a person whom the identity provider removes.

Their account is not active from the commit on, so to the policy they do not exist: sources and
gate refuse them, and an approval that they gave counts no more. This ends what would come back
with the account, and what others would wait for in vain.
"""

import logging
from collections.abc import Iterable

from bot.audit import change_log
from bot.audit.change_log import EntryDraft
from bot.audit.followed_log import follow_log
from bot.auth import sessions
from bot.db import outbox, runs, stops
from bot.db.database import StoreUnavailable, Transaction
from bot.features.scim import rows
from bot.model.run import STATES_BEFORE_INTENT, State
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.delegations import end_delegations_of
from bot.workflow.finish import end_run
from bot.workflow.standing_grants import revoke_grants_of
from bot.workflow.tokens import revoke_tokens_of

log = logging.getLogger(__name__)

SOURCE = "scim"


def end_rights(tx: Transaction, people: Iterable[str]) -> list[EntryDraft]:
    """End sessions, sign-in links, tokens, grants, delegations and claimed groups of people.

    Return the entries to append, once everything is locked.
    """
    drafts: list[EntryDraft] = []
    for person in sorted(people):
        sessions.end_all_sessions(tx, person)
        rows.delete_claims(tx, person)
        ended = [
            *revoke_grants_of(tx, person, SOURCE),
            *end_delegations_of(tx, person, SOURCE),
            *revoke_tokens_of(tx, person, SOURCE),
        ]
        drafts += [EntryDraft(event, None, "", "") for event in ended]
    return drafts


class LeaversDuty:
    """Withdraws the waiting requests of people whom the provider removed, in any process."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def run(self) -> None:
        """End what waits for them, one transaction each; a failure is tried again."""
        try:
            policy = self._context.policies.get_policy()
            if policy.written.provisioning is None:
                return
            with self._context.database.reading() as tx:
                leavers = _list_leavers(tx, policy)
                numbers = _list_waiting(tx, leavers)
            for number in numbers:
                self._end_request(policy, number, leavers)
        except (NoPolicyError, StoreUnavailable) as error:
            log.warning("the requests of people who left could not be withdrawn: %s", error)

    def _end_request(self, policy: Policy, number: int, leavers: frozenset[str]) -> None:
        # One transaction each: holding the log lock while waiting for a run can deadlock.
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            leaver = next((one for one in sorted(leavers) if run.is_requested_for(one)), "")
            if run.state not in STATES_BEFORE_INTENT or not leaver:
                return
            name = policy.get_person_name(leaver)
            why = f"The identity provider removed {name}, for whom it was requested"
            end_run(self._context, tx, run, State.WITHDRAWN, why)


def take_back_approvals(context: WorkflowContext, tx: Transaction, people: Iterable[str]) -> None:
    """Remove the approvals that these people gave to what waits, and let cards show it.

    They would count again with an account that becomes active again. A denial stays. What was
    approved to start later, or waits for the end of a freeze, is woken: it needs another approval
    now, and not only when it would have started.
    """
    numbers = rows.list_waiting_approved_by(tx, people)
    rows.remove_approvals(tx, numbers, people)
    for run in runs.list_runs(tx, numbers):
        if tx.is_first_call(("news", run.id)):
            outbox.announce_run(tx, run.id)
        if run.state is State.QUEUED:
            context.dispatcher.enqueue_run(tx, run.id, get_site(context, run.host))


def _list_leavers(tx: Transaction, policy: Policy) -> frozenset[str]:
    """Return people whose account is gone or not active. A banned person has not left."""
    provisioned = policy.provisioned
    if provisioned is None:
        return frozenset()
    bound = {one.id for one in policy.written.people.values() if one.provisioned}
    accounts = {one.person for one in provisioned.users}
    known = bound | accounts | set(provisioned.former_names)
    return frozenset(known - policy.organisation.people.keys() - stops.list_banned_people(tx))


def _list_waiting(tx: Transaction, leavers: frozenset[str]) -> list[int]:
    if not leavers:
        return []
    return [
        run.id
        for run in runs.list_runs(tx, rows.list_waiting(tx))
        if any(run.is_requested_for(one) for one in leavers)
    ]


def record_change(tx: Transaction, drafts: list[EntryDraft]) -> None:
    """Append the entries of a change, and let every process read the people again."""
    if not drafts:
        return
    rows.count_change(tx)
    change_log.append_entries(tx, drafts)
    # Read the entries now, so that deleting one later is noticed.
    follow_log(tx)
