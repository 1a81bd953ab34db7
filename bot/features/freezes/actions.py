"""What people do about freezes: order one until a time, and end it before."""

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from bot.audit import change_log, events, refusals
from bot.features.freezes import rows
from bot.features.freezes.rows import FreezeRow
from bot.model import host_patterns
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.text import join_names
from bot.model.times import DAY, format_deadline
from bot.policy import Policy
from bot.policy.freezes import HostPart
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import shorten_reason
from bot.workflow.stopping import check_stop_reason
from connectors.visible_text import quote_text

LONGEST_DAYS = 14
_LONGEST = LONGEST_DAYS * DAY
_MAX_PARTS = 50
_HOST_PART = TypeAdapter[str](HostPart)


class FreezeActions:
    """What people do about freezes. Methods raise NotAllowed and InvalidRequestError."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def order_freeze(
        self, what: str, *, person: str, until: int, reason: str, source: str
    ) -> FreezeRow:
        """Hold changes from now on.

        Args:
            what: Hosts, patterns and tags, or areas, separated by commas: `web*,db1` or `edge`.
            until: Microseconds since 1970, at most 14 days from now.
            source: Where it was ordered: `slack`, `web` or `api`.
        """
        policy, reason = self._context.policies.get_policy(), check_stop_reason(reason)
        parts = host_patterns.split_host_parts(what.lower())
        areas, hosts = _resolve_parts(policy, parts)
        refusal = get_refusal(policy, areas, person=person)
        self._check_allowed(refusal, join_names(parts), person=person, reason=reason)
        with self._context.database.transaction() as tx:
            if not tx.now < until <= tx.now + _LONGEST:
                raise InvalidRequestError(
                    f"a freeze ends within {LONGEST_DAYS} days, at "
                    f"{format_deadline(tx.now + _LONGEST)} at the latest: add a longer one to "
                    "freezes.yaml"
                )
            row = rows.add_freeze(
                tx, hosts=hosts, areas=areas, person=person, reason=reason, ends_at=until
            )
            ordered = events.FreezeOrdered(
                freeze=row.id,
                what=row.what,
                hosts=tuple(hosts),
                areas=tuple(areas),
                until=until,
                reason=reason,
                source=source,
            )
            change_log.append_entry(tx, ordered, person=person)
        return row

    def end_freeze(self, number: int, *, person: str, reason: str, source: str) -> FreezeRow:
        """End a freeze that a person ordered: what it held starts within seconds.

        Raises NoSuchFreezeError.
        """
        policy, reason = self._context.policies.get_policy(), shorten_reason(reason)
        with self._context.database.reading() as tx:
            row = rows.get_active(tx, number)
        refusal = get_end_refusal(policy, row, person=person)
        self._check_allowed(refusal, row.what, person=person, reason=reason)
        with self._context.database.transaction() as tx:
            if not rows.end_freeze(tx, number):
                raise rows.NoSuchFreezeError(number)
            ended = events.FreezeEnded(
                freeze=number,
                what=row.what,
                ordered_by=row.person,
                until=row.ends_at,
                reason=reason,
                source=source,
            )
            change_log.append_entry(tx, ended, person=person)
        return row

    def _check_allowed(self, refusal: str, what: str, *, person: str, reason: str) -> None:
        """Log a refusal, and raise NotAllowed with it."""
        if not refusal:
            return
        with self._context.database.transaction() as tx:
            refusals.log_person_refusal(
                tx, events.FreezeRefused(what=what, reason=reason), person=person
            )
        raise NotAllowed(refusal)


def get_refusal(policy: Policy, areas: Sequence[str], *, person: str) -> str:
    """Return why a person may not freeze these areas; "" if they may."""
    if policy.find_person(person) is None:
        return f"{person} is not in the policy"
    known = policy.organisation.areas
    others = [
        known[name].title for name in areas if name in known and person not in known[name].owners
    ]
    if not others or policy.get_order_ruling(person, "stop").allowed:
        return ""
    return (
        f"You cannot do that: only owners of {join_names(others)}, and people who can stop "
        "everything, can freeze changes there"
    )


def get_end_refusal(policy: Policy, row: FreezeRow, *, person: str) -> str:
    """Return why a person may not end a freeze; "" for those who may order it, and who did."""
    return get_refusal(policy, () if row.person == person else row.areas, person=person)


def _resolve_parts(policy: Policy, parts: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the areas of what was typed, and the hosts; no hosts if areas were named."""
    known = policy.organisation.areas
    if parts == ["*"]:
        return sorted(known), ()
    if all(part in known and part not in policy.inventory.hosts for part in parts):
        return sorted(set(parts)), ()
    if len(parts) > _MAX_PARTS:
        raise InvalidRequestError(f"name at most {_MAX_PARTS} hosts, or a pattern such as web*")
    tags = {host.name: host.tags for host in policy.inventory}
    areas: set[str] = set()
    for part in parts:
        try:
            matching = host_patterns.resolve_host_part(_HOST_PART.validate_python(part), tags)
        except ValidationError:
            matching = []
        if not matching:
            raise InvalidRequestError(
                f"no host matches {quote_text(part)}: name hosts as in web*, @tag or lb1,lb2, "
                f"or areas: {', '.join(sorted(known))}"
            )
        areas |= {policy.get_area(host).name for host in matching}
    return sorted(areas), parts
