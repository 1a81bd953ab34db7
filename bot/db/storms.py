"""Storms: requests of one kind that come within a minute, and share one card in chat.

They are of one kind if they are for the same runbook and area, and their cards go to the same
channel. The first that shares the card leads: the card is stored as its message.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import select

from bot.db import outbox, runs, tables
from bot.db.database import Transaction
from bot.db.outbox import PostedMessage
from bot.db.tables import PLAN_ONLY
from bot.model.run import RequestOrigin, Run
from bot.model.times import MINUTE

# The slot with which a run shares a card; its digest is the number of the run that leads.
SHARES = "shares card"
# As many have cards of their own.
_MOST_SINGLE = 10
# Of one card: Slack takes ten thousand characters in its table.
_MAX_MEMBERS = 50
# The numbers of the runs that share a card are at most so far from that of the run that leads.
_MAX_SPAN = 2000

_RUN, _MESSAGE = tables.run.c, tables.slack_message.c


def join_storm(
    tx: Transaction, run: Run, get_channel: Callable[[RequestOrigin], str]
) -> int | None:
    """Have a run share a card if more than ten of its kind came within a minute.

    Return the run that leads, which may be the run itself; None if it has a card of its own.
    get_channel: returns where the card of a request of this kind goes.
    """
    alike = _list_alike(tx, run, get_channel)
    if len(alike) <= _MOST_SINGLE:
        return None
    shared = select(_MESSAGE.digest).where(_MESSAGE.run.in_(alike), _MESSAGE.slot == SHARES)
    leaders = {int(digest) for digest in tx.sql.execute(shared.distinct()).scalars()}
    leader = max(leaders.intersection(alike), default=run.id)
    if len(list_members(tx, leader)) >= _MAX_MEMBERS:
        leader = run.id
    outbox.store_message(tx, PostedMessage(run.id, SHARES, "", "", str(leader)))
    return leader


def list_members(tx: Transaction, leader: int) -> Sequence[int]:
    """Return the runs that share a card with the run that leads, with itself."""
    query = (
        select(_MESSAGE.run)
        .where(
            _MESSAGE.run.between(leader - _MAX_SPAN, leader + _MAX_SPAN),
            _MESSAGE.slot == SHARES,
            _MESSAGE.digest == str(leader),
        )
        .order_by(_MESSAGE.run)
    )
    return tx.sql.execute(query).scalars().all()


def _list_alike(
    tx: Transaction, run: Run, get_channel: Callable[[RequestOrigin], str]
) -> Sequence[int]:
    """Return the runs of one kind that were requested up to a minute before or after a run."""
    query = select(_RUN.id, _RUN.origin).where(
        _RUN.requested_at.between(run.requested_at - MINUTE, run.requested_at + MINUTE),
        _RUN.id.between(run.id - _MAX_SPAN, run.id + _MAX_SPAN),
        _RUN.runbook == run.runbook,
        _RUN.area == run.area,
        _RUN.kind == run.kind,
        _RUN.parent.is_(None),
        _RUN.fan_out_role < PLAN_ONLY,
    )
    channel, rows = get_channel(run.origin), tx.sql.execute(query).all()
    return [row.id for row in rows if get_channel(runs.parse_origin(row.origin)) == channel]


def record_once(tx: Transaction, run: int, slot: str) -> None:
    """Record what is to be sent for a run, unless it is recorded already."""
    tx.insert_once(tables.slack_message, run=run, slot=slot, channel="", ts="", digest="")
