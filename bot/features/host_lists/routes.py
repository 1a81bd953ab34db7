"""Lists of hosts: propose, read, confirm and withdraw them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ApproveCaller, ReadCaller, RequestCaller
from bot.api.deps import Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import Digest, InputModel, ReasonIn, RunId
from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.changes import HostChange, HostListFile
from bot.features.host_lists.state import HostList

router = APIRouter(prefix="/host-lists", tags=["hosts"], route_class=IdempotentRoute)


class HostChangeOut(schemas.OutputModel):
    """What a list changes of one host."""

    name: str
    action: str = Field(description="`add`, `change` or `remove`.")
    before: Mapping[str, Any] = Field(description="The fields that differ, as they are now.")
    after: Mapping[str, Any] = Field(description="The fields as they will be.")
    fingerprint: str = Field(description="Of the host key or CA that the list sets, or empty.")
    lines: Sequence[str] = Field(description="The changes for people, one field each.")

    @classmethod
    def from_change(cls, one: HostChange) -> "HostChangeOut":
        return cls(
            name=one.name,
            action=one.action,
            before=one.before,
            after=one.after,
            fingerprint=one.fingerprint,
            lines=one.lines,
        )


class HostListOut(schemas.OutputModel):
    """A list of hosts to add, change or remove."""

    id: int
    state: str = Field(description="`open`, `confirmed`, `written`, `withdrawn` or `expired`.")
    digest: str = Field(description="Of exactly this list: what people confirm.")
    proposed_at: schemas.StoredTime
    proposed_by: str | None = Field(description="A person; null for a source.")
    source: str | None = Field(description="The source that proposes it; null for a person.")
    areas: Sequence[str] = Field(description="Owners of all of these can confirm it.")
    confirmed_by: Sequence[str]
    missing: int = Field(description="How many people still have to confirm it.")
    summary: str
    reason: str = Field(description="Why it was withdrawn.")

    @classmethod
    def list_fields(cls, one: HostList) -> dict[str, Any]:
        return {
            "id": one.number,
            "state": one.state,
            "digest": one.digest,
            "proposed_at": one.proposed_at,
            "proposed_by": one.proposed_by or None,
            "source": one.source or None,
            "areas": one.areas,
            "confirmed_by": [*one.confirmed_by],
            "missing": one.missing if one.state == "open" else 0,
            "summary": one.summary,
            "reason": one.reason,
        }

    @classmethod
    def from_list(cls, one: HostList) -> "HostListOut":
        return cls(**cls.list_fields(one))


class HostListDetailsOut(HostListOut):
    """A list with all of its changes."""

    changes: Sequence[HostChangeOut]
    requires_second_factor: bool = Field(
        description="Whether you can confirm it only on its page, with your second factor."
    )

    @classmethod
    def from_details(cls, one: HostList, *, needs_factor: bool) -> "HostListDetailsOut":
        changes = [HostChangeOut.from_change(each) for each in one.changes]
        return cls(**cls.list_fields(one), changes=changes, requires_second_factor=needs_factor)


class HostListsOut(schemas.OutputModel):
    lists: Sequence[HostListOut]
    unreadable: Sequence[int] = Field(
        description="Entries of the change log about lists, which cannot be read."
    )


class HostListIn(HostListFile, InputModel):
    """Hosts as in inventory.yaml, by name, and the names of those to remove."""


class ConfirmationIn(InputModel):
    """Which list was read."""

    digest: Digest


@router.get("", operation_id="listHostLists", summary="List lists of hosts")
def list_host_lists(parts: Parts, caller: ReadCaller) -> HostListsOut:
    """Those of the last 30 days that you proposed, or whose areas you own, the newest first."""
    actions = parts.service.bind(HostListActions)
    return HostListsOut(
        lists=[HostListOut.from_list(one) for one in actions.list_viewable(caller.id)],
        unreadable=actions.list_unreadable(),
    )


@router.post(
    "", operation_id="proposeHostList", summary="Propose a list of hosts", status_code=201
)
def propose_host_list(parts: Parts, caller: RequestCaller, body: HostListIn) -> HostListDetailsOut:
    """You count as the first of two people; an owner of all of its areas is the second."""
    actions = parts.service.bind(HostListActions)
    found = actions.propose(body, person=caller.id)
    return HostListDetailsOut.from_details(found, needs_factor=actions.needs_factor(caller.id))


@router.get("/{number}", operation_id="getHostList", summary="Get a list of hosts")
def get_host_list(parts: Parts, caller: ReadCaller, number: RunId) -> HostListDetailsOut:
    """With every change, as people confirm it."""
    actions = parts.service.bind(HostListActions)
    found = actions.get_viewable(number, caller.id)
    return HostListDetailsOut.from_details(found, needs_factor=actions.needs_factor(caller.id))


@router.post(
    "/{number}/confirm", operation_id="confirmHostList", summary="Confirm a list of hosts"
)
def confirm_host_list(
    parts: Parts, caller: ApproveCaller, number: RunId, body: ConfirmationIn
) -> HostListOut:
    """Send the digest of the list that you read. Another person than who proposed it confirms it.

    Who needs a second factor for it confirms it on its page.

    Once two people stand behind it, Keyturn writes it to inventory.yaml within seconds.
    """
    found = parts.service.bind(HostListActions).confirm(
        number, person=caller.id, digest=body.digest
    )
    return HostListOut.from_list(found)


@router.post(
    "/{number}/withdraw", operation_id="withdrawHostList", summary="Withdraw a list of hosts"
)
def withdraw_host_list(
    parts: Parts, caller: RequestCaller, number: RunId, body: ReasonIn
) -> HostListOut:
    """Who proposed it can do this, and owners of all of its areas."""
    found = parts.service.bind(HostListActions).withdraw(
        number, person=caller.id, reason=body.reason
    )
    return HostListOut.from_list(found)
