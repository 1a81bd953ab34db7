"""Looking: what is asked for, from the hosts, and from the change log where that knows it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast

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


# A question, and the host that it is put to.
First = tuple[str, Query[Any]]


class AsksMore(BaseException):
    """Ends a reading at a question that it must wait for. No fault: runbooks must not catch it."""

    def __init__(self, host: str, query: Query[Any]) -> None:
        super().__init__(host)
        self.question = host, query


def nobody(host: str, query: Query[Any], /) -> NoReturn:
    """Stand where somebody would be asked: raise AsksMore."""
    raise AsksMore(host, query)


def first_question(read: Callable[[Ask], object]) -> First | None:
    """Begin to read; return what that asks first. None if it asks nothing of a host, or fails."""
    try:
        read(nobody)
    except AsksMore as first:
        return first.question if type(first.question[1]) is Query else None
    except Exception:  # noqa: BLE001 - whoever reads in earnest hears of it
        return None
    return None


def knowing(first: First, told: Callable[[], Any], ask: Ask) -> Ask:
    """Return what knows the answer to the first question, and puts all others by *ask*."""
    known = [told]

    def answer(host: str, query: Query[Any], /) -> Any:
        asked, expected = (host, query.command), (first[0], first[1].command)
        return known.pop()() if known and asked == expected else ask(host, query)

    return answer


def asking(parts: Parts, hosts: Ask | None = None) -> Ask:
    """Return what puts a check's questions to whoever knows the answer.

    hosts: puts those that hosts know, if not the fleet.
    """
    hosts = hosts or parts.fleet.ask

    def ask(host: str, query: Query[T], /) -> T:
        if isinstance(query, Ours):
            return cast("T", _ours(parts, host, query))
        if isinstance(query, LastTime):
            return cast("T", _last_time(parts, host, query))
        return hosts(host, query)

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
