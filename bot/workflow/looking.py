"""Looking: what checks ask for, from the hosts, and from the change log where that knows it."""

from datetime import UTC, datetime
from typing import TypeVar, cast

from bot.run import Run, State
from bot.store import runs, search
from bot.store.search import Filter
from bot.workflow.parts import Parts
from connectors.command import Ask, Query
from connectors.history import Event, Ours
from runbooks import Earlier
from runbooks._earlier import LastTime

T = TypeVar("T")

_DID_SOMETHING = frozenset(
    {State.RUNNING, State.SUCCEEDED, State.FAILED, State.UNKNOWN, State.STOPPED}
)
_MOST = 500
# A check that was asked so often since with other values was not asked lately with these.
_LATELY = 50
_SECOND = 1_000_000


def asking(parts: Parts) -> Ask:
    """Return what puts a check's questions to whoever knows the answer."""

    def ask(host: str, query: Query[T], /) -> T:
        if isinstance(query, Ours):
            return cast("T", _ours(parts, host, query))
        if isinstance(query, LastTime):
            return cast("T", _last_time(parts, host, query))
        return parts.fleet.ask(host, query)

    return ask


def _ours(parts: Parts, host: str, query: Ours) -> tuple[Event, ...]:
    since = round(query.since.timestamp()) * _SECOND
    with parts.database.reading() as tx:
        wanted = Filter(host=host, since=since, states=_DID_SOMETHING)
        found = search.newest(tx, wanted, most=_MOST)
        return tuple(
            _event(run, runs.votes(tx, run.parent or run.id)) for run in found if _sent(run)
        )


def _last_time(parts: Parts, host: str, query: LastTime) -> Earlier | None:
    wanted = Filter(host=host, words=query.words, states=frozenset({State.SUCCEEDED}))
    with parts.database.reading() as tx:
        for run in search.newest(tx, wanted, most=_LATELY):
            same = all(run.fields.get(name) == value for name, value in query.fields.items())
            report = runs.get(tx, run.id).report if same else None
            if report is not None and run.ended is not None:
                return Earlier(datetime.fromtimestamp(run.ended / _SECOND, UTC), report)
    return None


def _sent(run: Run) -> bool:
    return run.kind == "change" and run.started is not None


def _event(run: Run, votes: list[runs.Vote]) -> Event:
    at = datetime.fromtimestamp((run.started or run.asked) / _SECOND, UTC)
    keys = ", ".join(vote.person for vote in votes if vote.yes)
    approved = f", approved by {keys}" if keys else ""
    return Event(at, "keyturn", run.asked_by, f"run {run.id}, {run.state}: {run.title}{approved}")
