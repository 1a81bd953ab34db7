"""Random orders of people, clock, hosts and faults: no forbidden packet is sent.

The real workflow over a real SQLite works for a toy fleet, and a small model beside it says before
each packet whether that packet may be. KEYTURN_CHAOS=1000 tries so many orders (`make chaos`).
"""

import atexit
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, Row, select

from bot.audit import change_log, evidence, verification
from bot.db import migrations, runs, search, stops, tables
from bot.db.database import Database, SeenHead, Transaction
from bot.db.runs import ConcurrentUpdateError
from bot.execution import gate
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import (
    ENDED_STATES,
    EXPIRING_STATES,
    IllegalTransitionError,
    RequestTerms,
    Run,
    State,
)
from bot.model.signing import SigningKey
from bot.policy import Policy
from bot.policy.freezes import FreezeList
from bot.policy.loader import load_policy
from bot.queries.banned_people import PolicyWithoutBanned
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.errors import CommandError, UnknownOutcomeError
from runbooks import AnyRunbook
from tests.bot.databases import skip_fsync
from tests.bot.harness import WEB, ManualDispatcher, authorise_all
from tests.campaigns import CHAOS
from tests.policies import write_policy
from tests.toy import RUNBOOKS, BreakSwitch, SetAll, SetSwitch, ShowSwitches, ToyFleet

PARTS = 4
SEQUENCES = (CHAOS or 20) // PARTS
STEPS = 25 if CHAOS else 10

OWNERS = frozenset({"olga", "adam"})
PEOPLE = ("dora", "olga", "adam", "stan")
HOSTS = ("lb1", "lb2")
# What a person hears who comes too late, or may not: never a fault.
NOES = (NotAllowed, TooLate, InvalidRequestError, ConcurrentUpdateError, IllegalTransitionError)

people = st.sampled_from(PEOPLE)
hosts = st.sampled_from(HOSTS)
moments = st.sampled_from(["reading", "sending", "sent"])
HINDRANCES = (
    *("deny", "withdraw", "stop", "stop all", "ban", "role lost", "freeze", "expiry"),
    *("another hand", "nudge"),
)
nth = st.integers(min_value=0, max_value=3)
sometimes = st.integers(min_value=0, max_value=4).map(lambda n: n == 4)


class PowerCut(BaseException):
    """The process is gone from one moment to the next."""


def _cut_power() -> None:
    raise PowerCut


def _fail_command() -> None:
    raise CommandError("output: glued")


def _lose_connection() -> None:
    raise UnknownOutcomeError("the connection was lost")


@dataclass
class Model:
    """What the outside world knows. keys: (run, person, digest). ended: runs that a person ended,
    or whose time is up. accepted: counter-proposals that their requester accepted. plans: what
    was planned only, and not requested since."""

    keys: set[tuple[int, str, str]] = field(default_factory=set[tuple[int, str, str]])
    ended: set[int] = field(default_factory=set[int])
    accepted: set[int] = field(default_factory=set[int])
    plans: set[int] = field(default_factory=set[int])
    gone: set[str] = field(default_factory=set[str])
    banned: set[str] = field(default_factory=set[str])
    halted: bool = False
    frozen: bool = False
    lost_packets: int = 0

    @property
    def hindered(self) -> bool:
        return bool(self.gone or self.banned or self.halted or self.frozen)

    def may_be_sent(self, run: Run, whole: Run, n: int) -> None:
        """Raise AssertionError unless this step of this run may go to its host now."""
        away = self.gone | self.banned
        assert not self.halted, "everything is stopped"
        assert not {run.id, whole.id} & self.ended, "somebody ended it"
        assert whole.proposal_for is None or whole.id in self.accepted, "nobody accepted it"
        assert whole.id not in self.plans, "only its plan was wanted"
        assert whole.requested_by not in away, "its asker is gone"
        assert not (self.frozen and n == 1), "changes are frozen"
        assert whole.plan is not None
        assert whole.plan.digest == whole.digest, "this is not what was shown"
        assert run.plan is not None
        reversible = whole.plan.is_reversible
        alone = whole.requested_by in OWNERS and reversible
        given = {
            person
            for number, person, digest in self.keys
            if number == whole.id and digest == whole.digest and person in OWNERS - away
        } - {whole.requested_by, *whole.editors}
        assert alone or given, "nobody whose key counts has turned one for this plan"


class Steady(Database):
    """Its clock goes on with each question alone, so that the same order is the same again."""

    began = 1_790_000_000_000_000
    elapsed = 0

    def read_clock(self, connection: Connection) -> int:  # noqa: ARG002
        self.elapsed += 1_000
        return self.began + self.elapsed


@cache
def _create_world_parts() -> tuple[Steady, sqlite3.Connection, Path]:
    """Return a database, what it is when empty, and a policy directory: made once for all."""
    directory = Path(tempfile.mkdtemp(prefix="keyturn-worlds-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    database = Steady(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create())
    # The power is cut in these tests by an exception: what was written is there.
    skip_fsync(database)
    migrations.upgrade_schema(database)
    with database.transaction() as tx:
        verification.open_log(tx)
    empty = sqlite3.connect(":memory:", check_same_thread=False)
    with database.engine.connect() as connection:
        _get_driver_connection(connection).backup(empty)
    return database, empty, write_policy(directory / "policy").path


def _empty_database() -> Steady:
    database, empty, _ = _create_world_parts()
    database.elapsed = 0
    # Another Keyturn, which remembers nothing of what the one before has written.
    database.seen_head = SeenHead()
    with database.engine.connect() as connection:
        empty.backup(_get_driver_connection(connection))
    return database


def _get_driver_connection(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


_FREEZE = {"name": "fair", "from": "1999-01-01 00:00", "until": "2999-01-01 00:00"}


@cache
def _policy(gone: frozenset[str], *, frozen: bool) -> Policy:
    freezes = FreezeList.model_validate({"freezes": [_FREEZE] if frozen else []})
    policy = load_policy(_create_world_parts()[2]).with_hosts_and_freezes([], freezes)
    return policy.without_people(gone)


class World(RuleBasedStateMachine):
    """One Keyturn from its first request to the end of the sequence."""

    @initialize(
        person=st.sampled_from(["dora", "olga"]),
        many=st.booleans(),
        moment=moments,
        what=st.sampled_from(HINDRANCES),
        who=people,
        countered=st.sampled_from(["no", "proposed", "accepted"]),
    )
    def begin(
        self, *, person: str, many: bool, moment: str, what: str, who: str, countered: str
    ) -> None:
        self.database = _empty_database()
        self.model, self.fleet, self.queue = Model(), ToyFleet(), ManualDispatcher()
        self.fleet.hosts = {host: {"fan": "off", "lamp": "off"} for host in HOSTS}
        self.fleet.before_send, self.fleet.after_send = self._before_send, self._after_send
        self.fleet.before_query = lambda _host: self._surprise(self.reading)
        self.reading: list[Callable[[], None]] = []
        self.sending: list[Callable[[], None]] = []
        self.sent: list[Callable[[], None]] = []
        self.states: frozenset[str] = frozenset()
        self._start()
        # A sequence in which nobody asks, or nothing comes in between, shows little.
        self.ask(person, "lb1", 5 if many else 2)
        self.work()
        if countered != "no":
            self.counter("olga" if person == "dora" else "adam", 0, "dim")
            self.work()
        if countered == "accepted":
            self.accept(0, right=True)
        self.meanwhile(moment, what, who, 0)
        self.approve_all("adam")
        self.work()

    def _start(self) -> None:
        admitted = PolicyWithoutBanned(self, self.database, clock=iter(range(10**9)).__next__)
        parts = WorkflowContext(
            self.database,
            admitted,
            self.fleet,
            self.queue,
            runbooks=RUNBOOKS,
            max_parallel_hosts=1,
        )
        self.service = KeyturnService(parts)

    def get_policy(self) -> Policy:
        return _policy(frozenset(self.model.gone), frozen=self.model.frozen)

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self._check_log()

    # What people ask for and approve

    @rule(person=people, host=hosts, which=st.integers(0, 5), plan_only=sometimes)
    def ask(self, person: str, host: str, which: int, plan_only: bool = False) -> None:
        runbooks: list[AnyRunbook] = [
            SetSwitch(host=host, name="lamp", value="on"),
            SetSwitch(host=host, name="fan", value="off"),
            SetAll(host=host, value="on"),
            BreakSwitch(host=host, name="lamp"),
            ShowSwitches(host=host),
        ]
        many = [SetSwitch(host=host, name="lamp", value="on") for host in HOSTS]
        with suppress(*NOES):
            if which < len(runbooks):
                run = self.service.request_run(
                    runbooks[which], RequestTerms(person, WEB, plan_only=plan_only)
                )
            else:
                run = self.service.request_on_hosts(
                    many, RequestTerms(person, WEB, plan_only=plan_only), host_pattern="lb*"
                )
            if plan_only:
                self.model.plans.add(run.id)

    @precondition(lambda self: "planned" in self.states)
    @rule(n=nth, right=st.booleans())
    def request_plan(self, n: int, right: bool) -> None:
        run = self._pick(n, {State.PLANNED})
        if run is None:
            return
        person = run.requested_by if right else "stan"
        with suppress(*NOES):
            self.service.request_plan(run.id, person=person, digest=run.digest)
            assert person == run.requested_by
            self.model.plans.discard(run.id)

    @precondition(lambda self: self.states & {"planned", "stale", "expired", "pending"})
    @rule(n=nth)
    def replan(self, n: int) -> None:
        run = self._pick(n, {State.PLANNED, State.STALE, State.EXPIRED, State.PENDING})
        if run is None:
            return
        with suppress(*NOES):
            new = self.service.replan_run(run.id, person=run.requested_by, origin=WEB)
            if run.plan_only:
                self.model.plans.add(new.id)
            with self.database.reading() as tx:
                if runs.get_run(tx, run.id).state is State.SUPERSEDED:
                    self.model.ended.add(run.id)

    @precondition(lambda self: "pending" in self.states)
    @rule(person=people, n=nth, right=st.booleans())
    def approve(self, person: str, n: int, right: bool) -> None:
        run = self._pick(n, {State.PENDING})
        if run is None:
            return
        if right:
            self._approve(run, person)
        else:
            with pytest.raises(NOES):
                self.service.approve_run(run.id, person=person, digest="0" * 64)

    @precondition(lambda self: "pending" in self.states)
    @rule(person=st.sampled_from(sorted(OWNERS)))
    def approve_all(self, person: str) -> None:
        for run in self._runs({State.PENDING}):
            self._approve(run, person)

    def _approve(self, run: Run, person: str) -> None:
        with suppress(*NOES):
            self.service.approve_run(run.id, person=person, digest=run.digest)
            self.model.keys.add((run.id, person, run.digest))

    @precondition(lambda self: "pending" in self.states)
    @rule(person=people, n=nth, value=st.sampled_from(["dim", "off"]))
    def counter(self, person: str, n: int, value: str) -> None:
        run = self._pick(n, {State.PENDING})
        if run is not None:
            with suppress(*NOES):
                self.service.propose_values(run.id, person=person, changed_values={"value": value})

    @precondition(lambda self: "counter_proposed" in self.states)
    @rule(n=nth, right=st.booleans())
    def accept(self, n: int, right: bool) -> None:
        run = self._pick(n, {State.COUNTER_PROPOSED})
        if run is None or run.proposal_for is None:
            return
        person = run.requested_by if right else "adam"
        with suppress(*NOES):
            after = self.service.accept_proposal(run.id, person=person, digest=run.digest)
            assert person == run.requested_by
            if after.state is not State.REFUSED:
                self.model.accepted.add(run.id)
                self.model.ended.add(run.proposal_for)

    @precondition(lambda self: self.states & {"succeeded", "failed", "stopped"})
    @rule(person=people, n=nth)
    def undo(self, person: str, n: int) -> None:
        run = self._pick(n, {State.SUCCEEDED, State.FAILED, State.STOPPED})
        if run is not None:
            with suppress(*NOES):
                self.service.request_undo(run.id, RequestTerms(person, WEB))

    @precondition(lambda self: "unknown" in self.states)
    @rule(person=people, n=nth, done=st.booleans())
    def settle(self, person: str, n: int, done: bool) -> None:
        run = self._pick(n, {State.UNKNOWN})
        if run is not None:
            with suppress(*NOES):
                self.service.resolve_run(
                    run.id, person=person, succeeded=done, reason="looked at the host"
                )

    # What stands in the way

    @rule(what=st.sampled_from(HINDRANCES), person=people, n=nth)
    def hindrance(self, what: str, person: str, n: int) -> None:
        self._hinder(what, person, n)

    def _hinder(self, what: str, person: str, n: int) -> None:
        flow, host = self.service, HOSTS[n % 2]
        happens: dict[str, Callable[[], None]] = {
            "deny": lambda: self._end(
                n, lambda run: flow.deny_run(run.id, person=person, reason="not today")
            ),
            "withdraw": lambda: self._end(
                n, lambda run: flow.withdraw_run(run.id, person=run.requested_by)
            ),
            "stop": lambda: self._end(n, lambda run: flow.stop_run(run.id, person=person)),
            "stop all": lambda: self._stop_all(person),
            "ban": lambda: self._ban(person, "adam" if n else "olga"),
            "role lost": lambda: self.model.gone.add(person),
            "freeze": lambda: setattr(self.model, "frozen", True),
            "expiry": lambda: self._expire(n),
            "another hand": lambda: self.fleet.hosts[host].update(lamp="dim"),
            "nudge": lambda: flow.advancer.wake_stalled_runs(),
        }
        happens[what]()

    def _stop_all(self, person: str) -> None:
        with suppress(*NOES):
            self.service.stop_everything(person=person, reason="smoke")
            self.model.halted = True

    def _ban(self, who: str, by: str) -> None:
        with suppress(*NOES):
            self.service.ban_person(who, banned_by=by, reason="stolen")
            self.model.banned.add(who)

    def _expire(self, n: int) -> None:
        run = self._pick(n, set(EXPIRING_STATES))
        if run is None:
            return
        with self.database.transaction() as tx:
            for each in [runs.get_run(tx, run.id), *runs.list_children(tx, run.id)]:
                if each.state in EXPIRING_STATES:
                    runs.amend_run(tx, each, expires_at=tx.now)
        self.model.ended.add(run.id)
        self.service.advancer.expire_runs()

    @precondition(lambda self: self.model.hindered)
    @rule(person=people)
    def remedy(self, person: str) -> None:
        """Let go what can be let go: nobody lets go alone what they began."""
        self.model.frozen = False
        self.model.gone.clear()
        for who in sorted(self.model.banned):
            with suppress(*NOES):
                self.service.unban_person(who, unbanned_by=person, reason="found")
                self.model.banned.discard(who)
        with suppress(*NOES):
            self.service.resume_everything(person=person, reason="it is out")
            self.model.halted = False

    # What comes at a bad moment

    @rule(moment=moments, what=st.sampled_from(HINDRANCES), person=people, n=nth)
    def meanwhile(self, moment: str, what: str, person: str, n: int) -> None:
        """Have something happen in the middle of the next look or step."""
        self._at(moment).append(lambda: self._hinder(what, person, n))

    @rule(moment=moments, how=st.sampled_from([_cut_power, _fail_command, _lose_connection]))
    def trouble(self, moment: str, how: Callable[[], None]) -> None:
        self._at(moment if how is _cut_power else "sending").append(how)

    def _at(self, moment: str) -> list[Callable[[], None]]:
        return {"reading": self.reading, "sending": self.sending, "sent": self.sent}[moment]

    # Work

    @precondition(lambda self: self.queue.enqueued)
    @rule(n=nth, again=st.booleans())
    def work_on_one(self, n: int, again: bool) -> None:
        number = self.queue.enqueued[n % len(self.queue.enqueued)]
        if not again:
            self.queue.enqueued.remove(number)
        with self._alive():
            self.service.advancer.advance_run(number)

    @precondition(lambda self: self.queue.enqueued)
    @rule()
    def work(self) -> None:
        with self._alive():
            for _ in range(50):
                if not self.queue.enqueued:
                    break
                self.service.advancer.advance_run(self.queue.enqueued.pop(0))

    @rule(restarted=st.booleans())
    def clock(self, restarted: bool) -> None:
        if restarted:
            self._restart()
        self.database.elapsed += 5_000_000
        self.service.advancer.expire_runs()
        self.service.advancer.wake_stalled_runs()

    def _restart(self) -> None:
        self.queue.enqueued.clear()
        self._start()
        self.service.advancer.recover_unfinished_runs()

    # What always holds

    @invariant()
    def it_is_as_the_log_says(self) -> None:
        if not hasattr(self, "database"):
            return
        with self.database.reading() as tx:
            logged = _list_entry_kinds_by_run(tx)
            rows = {row.id: row for row in tx.sql.execute(_STANDINGS)}
            held = list(tx.sql.execute(select(tables.host_lock.c.run)).scalars())
        self.states = frozenset(row.state for row in rows.values())
        for row in rows.values():
            _check_logged(row, logged.get(row.id, []))
            _check_proposal(row, rows, logged)
        # A lock is held by who is at work, or by who may still be.
        assert {rows[number].state for number in held} <= {"starting", "running", "unknown"}
        # Every packet has its intent, and every intent had one packet at the most.
        intents = sum(kinds.count("step sending") for kinds in logged.values())
        assert len(self.fleet.sent) + self.model.lost_packets == intents

    def _check_log(self) -> None:
        with self.database.reading() as tx:
            verdict = verification.verify_log(tx)
        assert verdict.broken is None, verdict.why

    # Its own machinery

    def _before_send(self, host: str, words: str) -> None:
        """Hold the packet against the model; what goes wrong here is found below."""
        with self.database.reading() as tx:
            entry = change_log.get_last_entry_of_kind(tx, "step sending")
            assert entry is not None
            assert entry.run is not None
            run = runs.get_run(tx, entry.run)
            whole = run if run.parent is None else runs.get_run(tx, run.parent)
        try:
            assert (entry.host, entry.facts["command"]) == (host, words)
            self.model.may_be_sent(run, whole, entry.facts["step"])
        except AssertionError as wrong:
            # The workflow would take any exception for a fault of its own.
            raise _ForbiddenPacket(str(wrong)) from wrong
        self.model.lost_packets += 1
        self._surprise(self.sending)
        self.model.lost_packets -= 1

    def _after_send(self, _host: str, _words: str) -> None:
        self._surprise(self.sent)

    @staticmethod
    def _surprise(moments: list[Callable[[], None]]) -> None:
        while moments:
            moments.pop(0)()

    @contextmanager
    def _alive(self) -> Generator[None]:
        """Let the process die if the power is cut, and start another."""
        try:
            yield
        except PowerCut:
            self._restart()

    def _end(self, n: int, how: Callable[[Run], object]) -> None:
        moving = {
            State.PLANNING,
            State.PLANNED,
            State.COUNTER_PROPOSED,
            State.PENDING,
            State.QUEUED,
            State.STARTING,
        }
        moving |= {State.RUNNING}
        run = self._pick(n, moving)
        if run is not None:
            with suppress(*NOES):
                how(run)
                self.model.ended.add(run.id)

    def _pick(self, n: int, states: set[State]) -> Run | None:
        candidates = self._runs(states)
        return candidates[n % len(candidates)] if candidates else None

    def _runs(self, states: set[State]) -> Sequence[Run]:
        with self.database.reading() as tx:
            return search.find_newest_runs(tx, search.RunFilter(states=frozenset(states)), most=20)


class _ForbiddenPacket(BaseException):
    """A packet that may not be: nothing on the way takes it for its own fault."""


def _list_entry_kinds_by_run(tx: Transaction) -> dict[int, list[str]]:
    kinds: dict[int, list[str]] = {}
    for entry in change_log.list_entries_after(tx, 0, limit=10_000):
        if entry.run is not None:
            kinds.setdefault(entry.run, []).append(entry.kind)
    return kinds


_run = tables.run.c
_STANDINGS = select(
    _run.id, _run.state, _run.parent, _run.hosts, _run.proposal_for, _run.replan_of
)
_ENDS = frozenset(state.value for state in ENDED_STATES)
_SAYS = {
    "planned": "planned",
    "pending": "planned",
    "queued": "planned",
    "starting": "claimed",
    "running": "started",
}


_Standing = Row[int, str, int | None, str, int | None, int | None]


def _check_proposal(
    row: _Standing, row_found: Mapping[int, _Standing], kinds: Mapping[int, Sequence[str]]
) -> None:
    """Check that only a newer plan, or a proposal that was accepted, replaces a request."""
    proposals = [each for each in row_found.values() if each.proposal_for == row.id]
    accepted = [
        each
        for each in proposals
        if "accepted" in kinds.get(each.id, []) and each.state != "refused"
    ]
    replaced = [each for each in proposals if "accepted" in kinds.get(each.id, [])]
    assert len(accepted) <= 1, "two proposals for one request were accepted"
    assert not accepted or row.state == "superseded", f"accepted, and the original is {row.state}"
    replaced += [each for each in row_found.values() if each.replan_of == row.id]
    assert row.state != "superseded" or replaced, "replaced, and nothing took its place"


def _check_logged(row: _Standing, kinds: Sequence[str]) -> None:
    """Check that the log tells how the run came to be as it is, and that it ended once at most."""
    state = row.state
    if state in _ENDS or state == "unknown":
        assert state in kinds, f"{state} is not in {kinds}"
    elif state in _SAYS and row.parent is None and row.hosts == "[]":
        assert _SAYS[state] in kinds, f"{state}, and the log says {kinds}"
    ends = [kind for kind in kinds if kind in _ENDS]
    assert len(ends) == int(state in _ENDS), f"{state}, and the log says {kinds}"


def _settings(sequences: int) -> settings:
    return settings(
        max_examples=sequences,
        stateful_step_count=STEPS,
        database=None,
        phases=[Phase.generate] if not CHAOS else list(Phase),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def _run_world(part: int, sequences: int) -> None:
    kind = seed(part)(type(f"World{part}", (World,), {}))
    run_state_machine_as_test(kind, settings=_settings(sequences))


@pytest.mark.timeout(0 if CHAOS else 120)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_events_in_any_order_send_no_forbidden_packet(part: int):
    _run_world(part, SEQUENCES)


def _skip_check(*_: object) -> None: ...


def _nobody(_tx: Transaction) -> frozenset[str]:
    return frozenset()


# The row of a ban or a stop is one guard, and the log, which knows of it too, the other.
_BY_LOG = (evidence, "list_banned", _nobody)


# The part in whose orders of events the packet comes early.
@pytest.mark.parametrize(
    ("guards", "part"),
    [
        ([(gate, "authorise_run", authorise_all)], 3),
        ([(stops, "get_stop_of_run", _skip_check), _BY_LOG], 1),
        ([(stops, "list_banned_people", _nobody), _BY_LOG], 3),
    ],
    ids=["authority", "stops", "bans"],
)
def test_without_a_guard_the_state_machine_finds_a_forbidden_packet(
    monkeypatch: pytest.MonkeyPatch, guards: list[tuple[object, str, object]], part: int
):
    for where, guard, instead in guards:
        monkeypatch.setattr(where, guard, instead)
    with pytest.raises((_ForbiddenPacket, BaseExceptionGroup)) as raised:
        _run_world(part, 400)
    assert _is_forbidden(raised.value), raised.value


def _is_forbidden(trouble: BaseException) -> bool:
    several: Sequence[BaseException] = getattr(trouble, "exceptions", ())
    return isinstance(trouble, _ForbiddenPacket) or any(_is_forbidden(each) for each in several)
