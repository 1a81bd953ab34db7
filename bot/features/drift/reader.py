"""Read what runs have set: ten minutes after each change, once a day, and on demand.

A reading is no run: it reads with the login that only reads, sends nothing, and leaves an entry in
the change log only when the state of a key changes.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from threading import Event

from bot.audit import change_log, events
from bot.db import locks, outbox, runs, stops
from bot.db.database import Transaction
from bot.execution.planner import load_runbook
from bot.features.drift import rows
from bot.features.drift.rows import DriftKey, NoSuchKeyError
from bot.features.drift.state import (
    MESSAGE_INTERVAL,
    Candidate,
    Reading,
    compute_next_reading,
    compute_state,
    evaluate_plan,
)
from bot.features.drift.watch import log_end
from bot.model.drift_state import DRIFTED_STATES, DriftState
from bot.model.times import to_datetime, to_microseconds
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext
from connectors import clock, history
from connectors.errors import CommandError, HostError, ParseError
from runbooks import Change, OddRowRefused, Refused, read_plan

log = logging.getLogger(__name__)

_SECOND = 1_000_000
# Longer than any reading takes: then another process may try.
_CLAIM_TIME = 900 * _SECOND
_LOCKED_DELAY = 60 * _SECOND
# How many keys are claimed at a time, and how many hosts are read at the same time.
_BATCH_SIZE, _MAX_PARALLEL_HOSTS = 32, 8
_MAX_CANDIDATES = 30
_MAX_DESCRIPTION = 200
# How far the window of candidates is widened, because events on a host are precise to the second.
_CLOCK_TOLERANCE = timedelta(seconds=2)
_HostReadings = Sequence[tuple[DriftKey, Reading, Sequence[Candidate]]]


@dataclass(frozen=True)
class DriftReader:
    """Reads the keys that are due. closing: set when the process is about to end."""

    context: WorkflowContext
    closing: Event

    def read_due_keys(self, *, requested: bool = False) -> None:
        """Read every key that is due, each by one process only.

        requested: only those that a person asked for, who must not wait for others, such as those
        of hosts that do not answer.
        """
        try:
            policy = self.context.policies.get_policy()
        except NoPolicyError:
            return
        while keys := self._claim_due_keys(policy, requested=requested):
            by_host: dict[str, list[DriftKey]] = {}
            for key in keys:
                by_host.setdefault(key.host, []).append(key)
            if len(by_host) == 1:
                self._read_host(policy, keys)
                continue
            with ThreadPoolExecutor(_MAX_PARALLEL_HOSTS, "read-drift") as pool:
                list(pool.map(partial(self._read_host, policy), by_host.values()))

    def _claim_due_keys(self, policy: Policy, *, requested: bool) -> list[DriftKey]:
        """Claim some of the keys that are due; none while everything is stopped."""
        sites, database = self.context.sites, self.context.database
        hosts = policy.inventory.hosts.values()
        others = {host.name for host in hosts if sites is not None and host.site not in sites}
        with database.reading() as tx:
            due = rows.list_due_keys(tx, requested=requested, other_hosts=others, most=_BATCH_SIZE)
            if not due or stops.get_stop_of_everything(tx) or self.closing.is_set():
                return []
        with database.transaction() as tx:
            locked = {lock.target for lock in locks.list_locks(tx)}
            claimed: list[DriftKey] = []
            for key in due:
                # A run is changing the host: what it leaves is read after it.
                delay = _LOCKED_DELAY if key.host in locked else _CLAIM_TIME
                own = rows.claim_reading(tx, key, next_at=tx.now + delay)
                if own is not None and key.host not in locked:
                    claimed.append(own)
            # If all of them are locked, the others have to wait for the next call.
            return claimed

    def _read_host(self, policy: Policy, keys: Sequence[DriftKey]) -> None:
        """Read the keys of one host and record what they are."""
        try:
            readings = [self._read_key(policy, key) for key in keys]
            if not self.closing.is_set():
                self._record_readings(readings)
        except Exception:
            # One host must not keep the others from being read.
            log.exception("the readings of %s cannot be recorded", keys[0].host)

    def _read_key(
        self, policy: Policy, key: DriftKey
    ) -> tuple[DriftKey, Reading, Sequence[Candidate]]:
        reading = self._read_plan(policy, key)
        with self.context.database.reading() as tx:
            now = tx.now
        state = _compute_state(key, reading, now)
        if state not in DRIFTED_STATES or state is key.state:
            return key, reading, key.candidates if state is key.state else ()
        return key, reading, [*self._list_candidates(policy, key, now)]

    def _read_plan(self, policy: Policy, key: DriftKey) -> Reading:
        """Plan the request that set the key again, without refusing what is only unwise now."""
        try:
            if key.host not in policy.inventory.hosts:
                raise Refused(f"{key.host} is not in the inventory any more")
            with self.context.database.reading() as tx:
                run = runs.get_run(tx, key.run)
            runbook = load_runbook(self.context, run)
            if not isinstance(runbook, Change):
                raise Refused(f"{run.runbook} is not a change")
            _, plan = read_plan(runbook, self.context.fleet.run_query, runbook.plan_anyway)
            return evaluate_plan(plan)
        except OddRowRefused as refused:
            return Reading(DriftState.UNREADABLE, value=str(refused)[:500])
        except Refused as refused:
            return Reading(DriftState.MISSING, value=str(refused)[:500])
        except HostError as error:
            return Reading(DriftState.UNREADABLE, value=str(error)[:500])
        except Exception:
            log.exception("%s on %s cannot be read by an error in its runbook", key.name, key.host)
            return Reading(DriftState.UNREADABLE, value="an internal error occurred: see the log")

    def _list_candidates(self, policy: Policy, key: DriftKey, now: int) -> Iterator[Candidate]:
        """Yield what happened on the host since the last good reading, newest first."""
        known = policy.inventory.hosts.get(key.host)
        if known is None:
            return
        since = to_datetime(key.good_at) - _CLOCK_TOLERANCE
        own_logins = {login.user for login in (known, known.reader) if login} - {"root"}
        run_query = self.context.fleet.run_query
        try:
            lead = to_datetime(now) - run_query(key.host, clock.query_clock())
        except HostError as error:
            yield Candidate(0, "unread", "", str(error)[:_MAX_DESCRIPTION])
            return
        events: list[history.HostEvent] = []
        for source, query in (
            ("logins", history.query_logins(since - lead)),
            ("uses of sudo", history.query_sudo(since - lead)),
            ("packages", history.query_packages(since - lead)),
        ):
            try:
                events += run_query(key.host, query)
            except (CommandError, ParseError) as error:
                yield Candidate(0, "unread", "", f"{source}: {error}"[:_MAX_DESCRIPTION])
            except HostError as error:
                yield Candidate(0, "unread", "", str(error)[:_MAX_DESCRIPTION])
                return
        # The uses of sudo by Keyturn's own logins are its readings and runs.
        events = [e for e in events if e.kind != "sudo" or e.account not in own_logins]
        for event in sorted(events, key=lambda e: e.time, reverse=True)[:_MAX_CANDIDATES]:
            yield Candidate(
                to_microseconds(event.time + lead),
                event.kind,
                event.account,
                event.description[:_MAX_DESCRIPTION],
            )

    def _record_readings(self, readings: _HostReadings) -> None:
        with self.context.database.transaction() as tx:
            recorded = [
                key for one in readings if (key := self._record_reading(tx, *one)) is not None
            ]
            _announce_drift(tx, recorded)

    def _record_reading(
        self, tx: Transaction, key: DriftKey, reading: Reading, candidates: Sequence[Candidate]
    ) -> DriftKey | None:
        """Store a reading; None if a run or a person has changed the key meanwhile."""
        try:
            stored = rows.lock_key(tx, key.id)
        except NoSuchKeyError:
            return None
        if stored != key or locks.get_lock(tx, key.host) is not None:
            return None
        if reading.state is DriftState.UNREADABLE and key.state in DRIFTED_STATES:
            # What is known of it stays true until a reading says otherwise.
            next_at = compute_next_reading(key.host, DriftState.UNREADABLE, now=tx.now)
            rows.store_key(tx, replace(key, next_at=next_at, requested_at=None))
            return None
        state, expectation = _compute_state(key, reading, tx.now), key.expectation
        has_lapsed = expectation is not None and tx.now >= expectation.until
        next_at = compute_next_reading(key.host, state, now=tx.now)
        if expectation is not None and not has_lapsed:
            next_at = min(next_at, expectation.until)
        is_new = state is not key.state
        is_kept = key.adopted or not reading.set_value
        new = replace(
            key,
            state=state,
            since_at=tx.now if is_new else key.since_at,
            good_at=tx.now if state is DriftState.AS_SET else key.good_at,
            read_at=tx.now,
            next_at=next_at,
            requested_at=None,
            digest=reading.digest if state is not DriftState.UNREADABLE else key.digest,
            value=reading.value,
            set_value=key.set_value if is_kept else reading.set_value,
            candidates=candidates,
            expectation=None if has_lapsed else expectation,
        )
        if is_new:
            log_end(tx, key)
            _log_drift(tx, new)
        rows.store_key(tx, new)
        return new


def build_duties(context: WorkflowContext, closing: Event) -> Sequence[Callable[[], None]]:
    """Return the readings that people asked for, and the periodic ones, as two duties."""
    reader = DriftReader(context, closing)
    return [partial(reader.read_due_keys, requested=True), reader.read_due_keys]


def _compute_state(key: DriftKey, reading: Reading, now: int) -> DriftState:
    return compute_state(reading, adopted=key.adopted, expectation=key.expectation, now=now)


def _log_drift(tx: Transaction, key: DriftKey) -> None:
    if key.state is DriftState.AS_SET:
        return
    change_log.append_entry(
        tx,
        events.DriftFound(
            key=key.name,
            state=key.state.value,
            value=tx.redactor.redact_text(key.value),
            set_value=tx.redactor.redact_text(key.set_value),
            since=key.good_at,
            until=key.since_at,
        ),
        run=key.run,
        host=key.host,
    )


def _announce_drift(tx: Transaction, keys: Sequence[DriftKey]) -> None:
    """Tell chat of new drift on one host, at most once an hour."""
    new = [
        key
        for key in keys
        if key.state in DRIFTED_STATES
        and (key.announced_at is None or key.announced_at < key.since_at)
    ]
    if not new:
        return
    last = rows.get_last_announcement(tx, new[0].host)
    if last is not None and tx.now - last < MESSAGE_INTERVAL:
        # They are read again when the next message may be sent.
        for key in new:
            rows.store_key(tx, replace(key, next_at=last + MESSAGE_INTERVAL))
        return
    for key in new:
        rows.store_key(tx, replace(key, announced_at=tx.now))
    outbox.announce_run(tx, new[0].run)
