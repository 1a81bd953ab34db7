"""Create and end delegations and standing grants."""

from bot.db.delegations import Delegation, NoSuchDelegation
from bot.db.grants import Grant, NoSuchGrant
from bot.model.errors import InvalidRequestError
from bot.model.grant_words import NewGrant
from bot.workflow import delegations, standing_grants
from bot.workflow.context import WorkflowContext


class DelegationAndGrantActions:
    """What people may do about delegations and standing grants.

    Methods take the source of the request (slack, web or cli), and raise InvalidRequestError and
    NotAllowed.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def create_delegation(
        self, *, delegator: str, delegate: str, ends_at: int, area: str, reason: str, source: str
    ) -> Delegation:
        """Let *delegate* decide on behalf of *delegator* until *ends_at* (microseconds)."""
        return delegations.create_delegation(
            self._context,
            delegator=delegator,
            delegate=delegate,
            ends_at=ends_at,
            area=area,
            reason=reason,
            source=source,
        )

    def end_delegation(self, number: int, *, person: str, source: str) -> Delegation:
        try:
            return delegations.end_delegation(self._context, number, person=person, source=source)
        except NoSuchDelegation as unknown:
            raise InvalidRequestError(str(unknown)) from None

    def create_grant(
        self, new_grant: NewGrant, *, granted_by: str, reason: str, source: str
    ) -> Grant:
        return standing_grants.create_grant(
            self._context, new_grant, granted_by=granted_by, reason=reason, source=source
        )

    def revoke_grant(self, number: int, *, person: str, source: str) -> Grant:
        try:
            return standing_grants.revoke_grant(
                self._context, number, person=person, source=source
            )
        except NoSuchGrant as unknown:
            raise InvalidRequestError(str(unknown)) from None
