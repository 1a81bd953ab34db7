"""What an identity provider says of people, as a fact of the policy."""

from collections.abc import Collection
from dataclasses import replace
from weakref import WeakKeyDictionary

from bot.audit import events
from bot.audit.followed_log import list_revoked
from bot.db.database import SeenHead, Transaction
from bot.features.scim import rows
from bot.model.run import Run
from bot.policy import Policy
from bot.policy.provisioning import ProvisionedPeople
from bot.queries.policy_facts import PolicyFacts

# The newest of each database that this process has opened: thousands of people are read again only
# after a change.
_NEWEST: WeakKeyDictionary[SeenHead, ProvisionedPeople] = WeakKeyDictionary()
# A removed person is out within a second everywhere, also in other processes.
_CACHE_SECONDS = 0.4


def apply_people(tx: Transaction, policy: Policy, run: Run | None = None) -> Policy:
    """Return the policy with the people of now. For a run, the change log has the last word.

    A person with write access to the database could restore the row of a removed account; its
    deactivation is in the log.
    """
    revision = rows.get_revision(tx)
    found = _NEWEST.get(tx.seen_head)
    is_new = found is None or found.revision != revision
    if found is None or is_new:
        found = rows.read_people(tx, revision)
    if is_new or run is not None:
        found = found.without_stays(list_revoked(tx, events.PersonDeprovisioned.kind))
    rules = policy.written.provisioning
    if rules and rules.groups_claim:
        found = _without_old_claims(found, rows.list_current_claims(tx))
    _NEWEST[tx.seen_head] = found
    return policy.with_provisioned_people(found)


def _without_old_claims(found: ProvisionedPeople, current: Collection[str]) -> ProvisionedPeople:
    if found.claims.keys() <= set(current):
        return found
    return replace(
        found, claims={name: one for name, one in found.claims.items() if name in current}
    )


FACTS = PolicyFacts(
    matter_to=lambda policy: policy.written.provisioning is not None,
    apply=apply_people,
    max_age_seconds=_CACHE_SECONDS,
)
