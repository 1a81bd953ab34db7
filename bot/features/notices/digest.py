"""The weekly digest of an owner: what waited, changed outside Keyturn, or lapses soon."""

from collections.abc import Iterator, Sequence

from bot.db import break_glass, runs
from bot.db.database import Transaction
from bot.policy import Policy
from bot.queries.digest import BuildDigest

_MAX_LINES = 10


def render_digest(
    tx: Transaction, policy: Policy, person: str, added: Sequence[BuildDigest] = ()
) -> str:
    """Return the digest of an owner's areas, from what this transaction may view.

    added: of the features.
    """
    owned = {area.name for area in policy.organisation.areas.values() if person in area.owners}
    sections = [
        ("Needs a review by another person", [*_iterate_reviews(tx, policy, owned)]),
        *((one.title, one.lines) for build in added for one in build(tx, policy, owned)),
    ]
    return "\n\n".join(_render_section(title, lines) for title, lines in sections)


def _render_section(title: str, lines: Sequence[str]) -> str:
    more = len(lines) - _MAX_LINES
    shown = [*lines[:_MAX_LINES], *([f"and {more} more"] if more > 0 else [])]
    return "\n".join([f"{title}:", *(f"  - {line}" for line in shown or ["none"])])


def _iterate_reviews(tx: Transaction, policy: Policy, owned: set[str]) -> Iterator[str]:
    for one in break_glass.list_unreviewed(tx):
        run = runs.get_run(tx, one.run)
        if owned & {*run.areas}:
            yield f"run {run.id}: {policy.get_person_name(one.person)} {one.deed}, {run.title}"
