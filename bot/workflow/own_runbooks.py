"""Enable the installation's own runbooks: two people each confirm the files as they are."""

from bot.audit import change_log, events
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.queries import own_runbooks
from bot.queries.own_runbooks import OwnRunbookState
from bot.workflow.context import WorkflowContext
from bot.workflow.stopping import check_order_allowed
from connectors.visible_text import quote_text
from runbooks import OwnRunbookError


def enable_runbook(
    context: WorkflowContext, words: str, *, person: str, alone: bool
) -> OwnRunbookState:
    """Record that a person confirms the files of an own runbook, and return its state.

    Those who may resume what others stopped may do this. alone: one person is enough, where the
    policy names no other who may.

    Raises InvalidRequestError, NotAllowed and TooLate.
    """
    with context.database.reading() as tx:
        _get_state(tx, words)
    check_order_allowed(context, person, "resume", requires_factor=False)
    others = context.policies.get_policy().list_people_allowed("resume", except_person=person)
    if alone and others:
        raise NotAllowed(
            f"{', '.join(sorted(others))} can confirm it too: enable it without --alone, so that "
            "another person does"
        )
    with context.database.transaction() as tx:
        change_log.lock_log(tx)
        before = _get_state(tx, words)
        if before.is_enabled:
            raise TooLate(f"{words} is enabled already")
        if person in before.people and not alone:
            raise NotAllowed(f"you confirmed {words} already: another person has to enable it")
        change_log.append_entry(
            tx,
            events.LocalRunbookEnabled(runbook=words, files=before.files, alone=alone),
            person=person,
        )
        return _get_state(tx, words)


def _get_state(tx: Transaction, words: str) -> OwnRunbookState:
    """Return the state of an own runbook, as its files are now. Raises InvalidRequestError."""
    try:
        states = {one.words: one for one in own_runbooks.list_states(tx)}
        own_runbooks.check_pages(words)
    except OwnRunbookError as error:
        raise InvalidRequestError(str(error)) from None
    if words not in states:
        raise InvalidRequestError(
            f"{quote_text(words)} is none of your own runbooks: `keyturn runbook enable` lists "
            "them, and those of Keyturn need no enabling"
        )
    return states[words]
