"""Mandates: delegations and standing grants, given and taken back."""

from bot.db.delegations import Delegation, NoSuchDelegation
from bot.db.grants import Grant, NewGrant, NoSuchGrant
from bot.workflow import delegations, standing_grants
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import InvalidRequest


class DelegationActions:
    """door: slack, web or cli. Raises Unfit and NotYours."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def delegate(
        self, *, person: str, to: str, ends: int, area: str, reason: str, door: str
    ) -> Delegation:
        """Let *to* decide in *person*'s stead until *ends* (microseconds)."""
        return delegations.create_delegation(
            self._parts, person=person, to=to, ends=ends, area=area, reason=reason, door=door
        )

    def end_delegation(self, number: int, *, person: str, door: str) -> Delegation:
        try:
            return delegations.end_delegation(self._parts, number, person=person, door=door)
        except NoSuchDelegation as unknown:
            raise InvalidRequest(str(unknown)) from None

    def grant(self, wanted: NewGrant, *, giver: str, reason: str, door: str) -> Grant:
        return standing_grants.create_grant(
            self._parts, wanted, giver=giver, reason=reason, door=door
        )

    def end_grant(self, number: int, *, person: str, door: str) -> Grant:
        try:
            return standing_grants.revoke_grant(self._parts, number, person=person, door=door)
        except NoSuchGrant as unknown:
            raise InvalidRequest(str(unknown)) from None
