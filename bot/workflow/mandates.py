"""Mandates: delegations and standing grants, given and taken back."""

from bot.store.delegations import Delegation, NoSuchDelegation
from bot.store.grants import Grant, NewGrant, NoSuchGrant
from bot.workflow import delegating, granting
from bot.workflow.asking import Unfit
from bot.workflow.parts import Parts


class Mandates:
    """door: slack, web or cli. Raises Unfit and NotYours."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def delegate(
        self, *, person: str, to: str, ends: int, area: str, reason: str, door: str
    ) -> Delegation:
        """Let *to* decide in *person*'s stead until *ends* (microseconds)."""
        return delegating.delegate(
            self._parts, person=person, to=to, ends=ends, area=area, reason=reason, door=door
        )

    def end_delegation(self, number: int, *, person: str, door: str) -> Delegation:
        try:
            return delegating.revoke(self._parts, number, person=person, door=door)
        except NoSuchDelegation as unknown:
            raise Unfit(str(unknown)) from None

    def grant(self, wanted: NewGrant, *, giver: str, reason: str, door: str) -> Grant:
        return granting.grant(self._parts, wanted, giver=giver, reason=reason, door=door)

    def end_grant(self, number: int, *, person: str, door: str) -> Grant:
        try:
            return granting.revoke(self._parts, number, person=person, door=door)
        except NoSuchGrant as unknown:
            raise Unfit(str(unknown)) from None
