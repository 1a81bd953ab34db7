"""Runs that another person reviews afterwards, and their reviews.

Those are runs with break-glass, which bypass approvals and freezes, and runs that started under a
rule with @review.
"""

from dataclasses import dataclass

from sqlalchemy import bindparam, select, update

from bot.db import tables, view_conditions
from bot.db.database import Transaction
from bot.model.times import DAY

REVIEW_TIME = DAY
_OF = select(tables.break_glass).where(tables.break_glass.c.run == bindparam("of"))


@dataclass(frozen=True)
class BreakGlass:
    """A run to review. Times are microseconds since 1970; None means not yet.

    factor: the digest of the second factor that activated break-glass. review: the text of the
    review.
    """

    run: int
    person: str
    reason: str
    requested_at: int
    activated_at: int | None = None
    active_until: int | None = None
    factor: str = ""
    reviewed_at: int | None = None
    reviewer: str = ""
    review: str = ""

    @property
    def is_by_rule(self) -> bool:
        """Whether a rule with @review permitted the run, without break-glass."""
        return self.activated_at is not None and self.active_until is None

    @property
    def deed(self) -> str:
        """What the person did, in words: `used break-glass`."""
        return "ran a change without approval" if self.is_by_rule else "used break-glass"

    @property
    def review_due(self) -> int | None:
        """When another person must have reviewed it; None before activation and after review."""
        if self.activated_at is None or self.reviewed_at is not None:
            return None
        return self.activated_at + REVIEW_TIME

    def open(self, now: int) -> bool:
        return self.active_until is not None and now < self.active_until


def request_break_glass(tx: Transaction, *, run: int, person: str, reason: str) -> None:
    """Record a request for break-glass access, or replace the reason of an earlier one."""
    new = BreakGlass(run, person, reason, tx.now)
    if not tx.insert_once(tables.break_glass, **vars(new)):
        _change(tx, run, reason=reason)


def activate_break_glass(tx: Transaction, run: int, *, until: int, factor: str) -> None:
    _change(tx, run, activated_at=tx.now, active_until=until, factor=factor)


def record_start_to_review(tx: Transaction, *, run: int, person: str, reason: str) -> None:
    """Record that a run started which another person has to review."""
    request_break_glass(tx, run=run, person=person, reason=reason)
    _change(tx, run, activated_at=tx.now)


def record_review(tx: Transaction, run: int, *, reviewer: str, words: str) -> None:
    _change(tx, run, reviewed_at=tx.now, reviewer=reviewer, review=words)


def get_break_glass(tx: Transaction, run: int) -> BreakGlass | None:
    row = tx.sql.execute(_OF, {"of": run}).mappings().first()
    return BreakGlass(**row) if row else None


def list_active(tx: Transaction) -> frozenset[int]:
    """Return the runs with break-glass access that is active now."""
    column = tables.break_glass.c
    return frozenset(
        tx.sql.execute(select(column.run).where(column.active_until > tx.now)).scalars()
    )


def list_unreviewed(tx: Transaction) -> list[BreakGlass]:
    """Return activated accesses without a review, the oldest first."""
    column = tables.break_glass.c
    query = select(tables.break_glass).where(
        column.activated_at.is_not(None), column.reviewed_at.is_(None)
    )
    found = [
        BreakGlass(**row) for row in tx.sql.execute(query.order_by(column.activated_at)).mappings()
    ]
    seen = view_conditions.list_viewable(tx, [access.run for access in found])
    return [access for access in found if access.run in seen]


def get_overdue_review(tx: Transaction, person: str) -> BreakGlass | None:
    """Return the oldest access of this person whose review is overdue."""
    return next(
        (
            access
            for access in list_unreviewed(tx)
            if access.person == person and (access.review_due or tx.now) < tx.now
        ),
        None,
    )


def _change(tx: Transaction, run: int, **values: object) -> None:
    tx.sql.execute(
        update(tables.break_glass).where(tables.break_glass.c.run == run).values(values)
    )
