"""Groups that the token of a sign-in names, which give roles until twelve hours later."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from bot.audit import change_log, events
from bot.db.database import Transaction
from bot.features.scim import rows
from bot.policy import Policy
from bot.policy.provisioning import ClaimedGroups


def record_claims(tx: Transaction, policy: Policy, person: str, claims: Mapping[str, Any]) -> None:
    """Record which groups of the policy a verified token names, and no others.

    A token without the claim names none: a provider that leaves it out takes the roles away.
    """
    rules = policy.written.provisioning
    if rules is None or rules.groups_claim is None or claims.get("iss") != rules.issuer:
        return
    given = claims.get(rules.groups_claim)
    named: Sequence[object] = cast("list[object]", given) if isinstance(given, list) else [given]
    groups = tuple(sorted(one for one in rules.groups if one in named))
    rows.lock_revision(tx)
    is_same = rows.get_claims(tx, person).groups == groups
    rows.put_claims(tx, person, ClaimedGroups(rules.issuer or "", groups))
    if is_same:
        return
    rows.count_change(tx)
    changed = events.ClaimedGroupsChanged(source="web", issuer=rules.issuer or "", groups=groups)
    change_log.append_entry(tx, changed, person=person)
