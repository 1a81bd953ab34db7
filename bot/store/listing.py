"""A listing: runs as a page of the history shows them, and no more of each than that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import select

from bot.run import State, Vote, standing, titled
from bot.store import runs, search, tables, views
from bot.store.among import among, as_one
from bot.store.database import Transaction
from bot.store.rote import rows_of_each
from bot.store.rows import names
from bot.store.search import Filter
from bot.store.views import View
from bot.timetable import Timing

_RUN = tables.run.c


class Listed(NamedTuple):
    """One run. Times are microseconds since 1970, UTC; None means not yet."""

    id: int
    stands: str
    host: str
    area: str
    asked_by: str
    reason: str
    asked: int
    started: int | None
    ended: int | None
    summary: str
    words: str
    request: str
    undo_of: int | None
    all_hosts: str
    timing: str | None
    unwell: bool

    @property
    def state(self) -> State:
        return State(self.stands)

    @property
    def standing(self) -> str:
        return standing(self.state, unwell=self.unwell)

    @property
    def title(self) -> str:
        timing = Timing.from_json(self.timing) if self.timing else None
        return titled(self.request or self.words, undo_of=self.undo_of, timing=timing)

    @property
    def hosts(self) -> Sequence[str]:
        """Those of a request for several; () of any other."""
        return names(self.all_hosts)


_OTHERWISE = {"stands": "state", "all_hosts": "hosts"}
_COLUMNS = [_RUN[_OTHERWISE.get(name, name)] for name in Listed._fields]
_LIST = among(select(*_COLUMNS).order_by(_RUN.id.desc()), _RUN.id)


@dataclass(frozen=True)
class Listing:
    """runs: as many as fit, or those among the ones looked at. older: `before` of the next page;
    None if there is none. votes: by run. views: those of whoever looks at it."""

    runs: Sequence[Listed]
    older: int | None
    votes: Mapping[int, Sequence[Vote]]
    views: Sequence[View]


def page(tx: Transaction, wanted: Filter | None, *, most: int, whose: str) -> Listing:
    """Return a page of runs, the newest first. Nothing is asked of this transaction after it.

    wanted: None for a page without any. whose: who looks at it.
    """
    found, older = ([], None) if wanted is None else search.looked_for(tx, wanted, most)
    listed = _LIST.asked(wanted=as_one(tx, found))
    beside = runs.votes_asked(tx, found), views.asked(whose)
    rows, votes, kept = rows_of_each(tx, listed, *beside, last=True)
    return Listing(
        [*map(Listed._make, rows)],
        older,
        runs.votes_found(votes),
        views.found(kept),
    )
