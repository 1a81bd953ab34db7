"""What the policy page shows of people: who is from the identity provider, and who is not."""

from collections.abc import Mapping
from dataclasses import asdict

from bot.db.database import Transaction
from bot.features.scim.claims import record_claims
from bot.features.scim.people import list_people
from bot.policy import Policy
from bot.web.pages import Pages, PageSection

# A page with more would be slow; `keyturn people list` has all.
_MAX_SHOWN = 200


def _read_people(_tx: Transaction, policy: Policy) -> Mapping[str, object]:
    if policy.written.provisioning is None:
        return {}
    people = list_people(policy)
    return {
        "people": [asdict(one) for one in people[:_MAX_SHOWN]],
        "others": len(people) - _MAX_SHOWN,
        "provisioning": policy.written.provisioning,
    }


PAGES = Pages(
    sections=[PageSection("policy", "scim/people.html", _read_people)],
    record_claims=record_claims,
)
