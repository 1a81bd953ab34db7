"""What open pages follow: whether lists may have changed, and how many runs await each reader.

It is read once for all open pages, at most once a second, however many there are.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from anyio import to_thread

from bot.auth import sessions
from bot.db import run_progress, view_conditions
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.policy import NoPolicyError, Policy, PolicySource
from bot.queries import pending
from bot.web.auth import NotSignedInError

# Rules may depend on the time, so that a count is not kept for longer.
_MAX_COUNT_SECONDS = 60.0
# A new count waits for so many times as long as the last one took: thousands of pending runs that
# change all the time leave the processor to other requests.
_REST_FACTOR = 20
# How often is looked whether the readers of open pages are still in the policy.
_PEOPLE_SECONDS = 0.25
# How many lists all open pages together may load again in a second.
_RELOADS_PER_SECOND = 10


@dataclass(frozen=True, eq=False)
class Follower:
    """An open page: its reader and the session by which the page was opened."""

    person: str
    session: str = field(repr=False)


@dataclass(frozen=True)
class FeedState:
    """What pages follow, as it was at one reading."""

    signed_in: frozenset[str] = frozenset()
    """The sessions of open pages that have not ended, of people of the policy."""
    stamps: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each reader a value that changes with what lists show to them."""
    waiting: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many runs and questions wait for each reader."""
    reload_seconds: float = 0.0
    """Over what time the pages spread the reloads of their lists."""


@dataclass
class ChangeFeed:
    """Reads for all open pages of this process.

    Attributes:
        max_age: How old the state may be, in seconds.
        session_seconds: After how many seconds sessions are checked again.
    """

    database: Database
    policies: PolicySource
    max_age: float
    session_seconds: float
    clock: Callable[[], float] = time.monotonic
    _followers: set[Follower] = field(default_factory=set[Follower])
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _state: FeedState = field(default_factory=FeedState)
    _known: frozenset[Follower] = frozenset()
    _read_at: float = float("-inf")
    _checked_at: float = float("-inf")
    _pages: dict[asyncio.Future[Exception], str] = field(
        default_factory=dict[asyncio.Future[Exception], str]
    )
    _looking: asyncio.Task[None] | None = None
    _counted: tuple[Policy, str] | None = None
    _counted_at: float = float("-inf")
    _count_again_at: float = float("-inf")

    @contextmanager
    def follow(self, follower: Follower) -> Generator[None]:
        """Read for an open page too, for the duration of the context."""
        self._followers.add(follower)
        try:
            yield
        finally:
            self._followers.discard(follower)

    async def read(self, follower: Follower) -> FeedState:
        """Return the state; the page that finds it too old reads it for all.

        Raises:
            NoPolicyError: There is no valid policy.
            StoreUnavailable: The database does not respond.
        """
        async with self._lock:
            is_old = self.clock() - self._read_at >= self.max_age
            if is_old or follower not in self._known:
                followers = frozenset(self._followers)
                self._state = await to_thread.run_sync(self._read_state, followers)
                self._known, self._read_at = followers, self.clock()
            return self._state

    @contextmanager
    def watch_access(self, person: str) -> Generator[asyncio.Future[Exception]]:
        """Yield what is done as soon as an open page of a person has to end, and why.

        The reasons are NotSignedInError once the person is no longer in the policy, NoPolicyError
        and StoreUnavailable. One task looks for all open pages of this process.
        """
        ends = asyncio.get_running_loop().create_future()
        self._pages[ends] = person
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_people())
        try:
            yield ends
        finally:
            del self._pages[ends]

    async def _look_for_people(self) -> None:
        while self._pages:
            await asyncio.sleep(_PEOPLE_SECONDS)
            problem: Exception | None = None
            people: Collection[str] = ()
            try:
                policy = await to_thread.run_sync(self.policies.get_policy)
                people = policy.organisation.people
            except (NoPolicyError, StoreUnavailable) as error:
                problem = error
            for ends, person in self._pages.items():
                if person not in people and not ends.done():
                    ends.set_result(
                        problem or NotSignedInError("You are no longer in the policy.")
                    )

    def _read_state(self, followers: frozenset[Follower]) -> FeedState:
        policy = self.policies.get_policy()
        with self.database.reading() as tx:
            signed_in = self._list_signed_in(tx, policy, followers)
            people = {one.person for one in followers if one.session in signed_in}
            return FeedState(
                signed_in,
                _read_stamps(tx, policy, people),
                self._count_waiting(tx, policy, people),
                len(followers) / _RELOADS_PER_SECOND,
            )

    def _list_signed_in(
        self, tx: Transaction, policy: Policy, followers: frozenset[Follower]
    ) -> frozenset[str]:
        known = self._state.signed_in
        if followers - self._known or self.clock() - self._checked_at >= self.session_seconds:
            self._checked_at = self.clock()
            known = sessions.list_active(tx, {one.session for one in followers})
        return frozenset(
            one.session
            for one in followers
            if one.session in known and policy.find_person(one.person)
        )

    def _count_waiting(
        self, tx: Transaction, policy: Policy, people: Collection[str]
    ) -> Mapping[str, int]:
        known, began = self._state.waiting, self.clock()
        counted = (policy, run_progress.get_waiting_stamp(tx))
        is_outdated = counted != self._counted or began - self._counted_at >= _MAX_COUNT_SECONDS
        if is_outdated and began >= self._count_again_at:
            known = pending.count_waiting(tx, policy, people)
            self._counted, self._counted_at = counted, began
            now = self.clock()
            self._count_again_at = now + _REST_FACTOR * (now - began)
        elif added := {person for person in people if person not in known}:
            known = {**known, **pending.count_waiting(tx, policy, added)}
        return known


def _read_stamps(tx: Transaction, policy: Policy, people: Collection[str]) -> Mapping[str, str]:
    """Return the stamps of readers: the same for all who may view everything."""
    of_all = run_progress.get_stamp(tx)
    stamps: dict[str, str] = {}
    for person in people:
        with view_conditions.viewing_as(tx, policy.get_view_rights(person)):
            sees_all = view_conditions.can_view_everything(tx)
            stamps[person] = of_all if sees_all else run_progress.get_stamp(tx)
    return stamps
