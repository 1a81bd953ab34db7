"""Read the hosts of new requests, and record their plans or reports.

The child runs at one site are read in parallel, by a thread each. The results are recorded in
batches, so that many hosts take few commits.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from bot.db import runs
from bot.db.database import StoreRefused, StoreUnavailable, Transaction
from bot.execution.planner import compute_remaining, issue_plan, resolve_plan, run_check
from bot.model.plan import RemainingWork
from bot.model.plan_text import PlanTextError
from bot.model.run import RefusedBy, Run, State
from bot.policy import NoPolicyError
from bot.workflow.context import WorkflowContext, compute_plan_expiry
from bot.workflow.finish import RunEnd, end_if_stopped, end_run, end_runs
from bot.workflow.hooks import RefusedByFeature, check_work, prepare_work
from bot.workflow.submit_plan import submit_plan
from connectors.errors import HostError, prefix_host
from runbooks import Refused, Report

T = TypeVar("T")

log = logging.getLogger(__name__)

# Results that arrive within so short a time are recorded together.
_BATCH_SECONDS = 0.1

# Records the result of a run that is still planning, in the transaction that has locked it.
_RecordResult = Callable[[Transaction, Run], None]
_ReadResult = tuple[Run, Report | _RecordResult | BaseException | None]


class BatchQueue(Generic[T]):
    """Collects a known number of items. Any thread may put; *remaining* are still to be taken.

    The taker is woken for the first and for the last item of a batch, and not for each item.
    """

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self._items: list[T] = []
        self._lock = threading.Lock()
        self._has_items, self._is_complete = threading.Event(), threading.Event()

    def put_item(self, item: T) -> None:
        """Add one item."""
        with self._lock:
            self._items.append(item)
            if len(self._items) == 1:
                self._has_items.set()
            if len(self._items) == self.remaining:
                self._is_complete.set()

    def take_batch(self, *, seconds: float) -> Sequence[T]:
        """Wait for an item; return it and those that follow within *seconds*."""
        self._has_items.wait()
        self._is_complete.wait(seconds)
        with self._lock:
            taken, self._items = self._items, []
            self.remaining -= len(taken)
            self._has_items.clear()
            self._is_complete.clear()
        return taken


class HostReader:
    """Reads the hosts of new requests. closing: set when the process is about to end."""

    def __init__(self, context: WorkflowContext, closing: threading.Event) -> None:
        self._context, self._closing = context, closing
        self._pool = ThreadPoolExecutor(context.max_parallel_hosts, thread_name_prefix="read-host")
        self._lock = threading.Lock()
        self._being_read: set[int] = set()

    def list_runs_being_read(self) -> frozenset[int]:
        """Return the runs whose hosts are being read now."""
        with self._lock:
            return frozenset(self._being_read)

    def read_hosts(self, runs_to_plan: Sequence[Run], stopped: Collection[int]) -> Sequence[Run]:
        """Read the hosts of these runs, except those that another thread is reading.

        Returns the runs that need no approval and may start. Raises the first error after all
        other runs are recorded. stopped: the numbers of stopped runs.
        """
        with self._lock:
            unread = [one for one in runs_to_plan if one.id not in self._being_read]
            self._being_read.update(one.id for one in unread)
        try:
            return self._read_and_record(unread, stopped)
        finally:
            with self._lock:
                self._being_read.difference_update(one.id for one in unread)

    def _read_and_record(
        self, runs_to_plan: Sequence[Run], stopped: Collection[int]
    ) -> Sequence[Run]:
        results = BatchQueue[_ReadResult](len(runs_to_plan))
        is_sequential = len(runs_to_plan) == 1 or self._context.max_parallel_hosts == 1
        for one in runs_to_plan:
            read = partial(self._put_result, one, results, is_stopped=one.id in stopped)
            if is_sequential:
                read()
            else:
                self._pool.submit(read)
        errors: list[Exception] = []
        ready: list[Run] = []
        while results.remaining:
            # A commit for each result would take longer than waiting for the next.
            batch = results.take_batch(seconds=_BATCH_SECONDS)
            _raise_process_exit(batch)
            ready += self._record_batch(batch, errors, has_more=results.remaining > 0)
        if errors:
            raise errors[0]
        return ready

    def _put_result(self, run: Run, results: BatchQueue[_ReadResult], *, is_stopped: bool) -> None:
        """Add the result of a run, or its error, to the queue."""
        record: Report | _RecordResult | BaseException | None = None
        try:
            if not self._closing.is_set():
                record = self._record_stop if is_stopped else self._read_host(run)
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            record = error
        results.put_item((run, record))

    def _read_host(self, run: Run) -> Report | _RecordResult | None:
        """Read the host; return the result, or None if the process ends meanwhile."""
        try:
            if run.kind == "check" and run.timing is None:
                return run_check(self._context, run)
            policy = self._context.policies.get_policy()
            left = compute_remaining(self._context, run, policy)
            left = prepare_work(self._context, policy, run, left)
            return partial(self._record_plan, remaining=left)
        except RefusedByFeature as refused:
            return partial(
                self._record_refusal, summary=str(refused), refused_by=refused.refused_by
            )
        except Refused as refused:
            return partial(
                self._record_refusal, summary=str(refused), refused_by=RefusedBy.RUNBOOK
            )
        except HostError as error:
            # A read that was interrupted by our shutdown is repeated at the next start.
            if self._closing.is_set():
                return None
            summary = prefix_host(run.host, str(error))
            return partial(self._record_end, state=State.FAILED, summary=summary)

    def _record_batch(
        self, batch: Sequence[_ReadResult], errors: list[Exception], *, has_more: bool
    ) -> Sequence[Run]:
        """Record a batch of results. has_more: other hosts are still being read."""
        errors += [record for _, record in batch if isinstance(record, Exception)]
        results = [
            (run, record)
            for run, record in batch
            if isinstance(record, Report) or callable(record)
        ]
        if not results:
            return ()
        try:
            return self._commit_batch(results, has_more=has_more)
        except (StoreUnavailable, NoPolicyError) as error:
            if not isinstance(error, StoreRefused) or len(results) == 1:
                errors.append(error)
                return ()
        except Exception as error:
            if len(results) == 1:
                errors.append(error)
                return ()
            log.exception("of %d runs one could not be recorded", len(results))
        # One of them causes the error: record each by itself.
        return [
            run
            for each in results
            for run in self._record_batch(
                [each], errors, has_more=has_more or each is not results[-1]
            )
        ]

    def _commit_batch(
        self, batch: Sequence[tuple[Run, Report | _RecordResult]], *, has_more: bool
    ) -> Sequence[Run]:
        records = {run.id: record for run, record in batch}
        with self._context.database.transaction() as tx:
            if has_more:
                # The parent waits for children that are still being read: do not wake it yet.
                tx.is_first_call(("advance", batch[0][0].parent))
            locked = runs.lock_runs(tx, [run for run, _ in batch])
            ends: list[RunEnd] = []
            for run in locked:
                record = records[run.id]
                if run.state is not State.PLANNING:
                    continue
                if isinstance(record, Report):
                    ends.append(RunEnd(run, State.SUCCEEDED, record.summary, report=record))
                else:
                    record(tx, run)
            end_runs(self._context, tx, ends)
            # Child runs wait for the approval of their parent, and checks have ended.
            planned = [
                run.id for run in locked if run.parent is None and callable(records[run.id])
            ]
            updated = [runs.get_run(tx, number) for number in planned]
        return [run for run in updated if run.state is State.QUEUED]

    def _record_stop(self, tx: Transaction, run: Run) -> None:
        end_if_stopped(self._context, tx, run, None)

    def _record_plan(self, tx: Transaction, run: Run, *, remaining: RemainingWork) -> None:
        policy = self._context.policies.get_policy()
        if not remaining.steps and run.timing is None:
            end_run(self._context, tx, run, State.NO_CHANGES, remaining.current_state)
            return
        try:
            check_work(self._context, tx, policy, run, remaining)
        except RefusedByFeature as refused:
            self._record_refusal(tx, run, summary=str(refused), refused_by=refused.refused_by)
            return
        if run.timing is None:
            added = (
                note
                for list_notes in self._context.hooks.list_plan_notes
                for note in list_notes(self._context, tx, policy, run, remaining)
            )
            remaining = replace(remaining, notes=(*remaining.notes, *added))
        expires = compute_plan_expiry(self._context, policy, run, now=tx.now)
        plan = resolve_plan(self._context, run, policy, remaining, expires_at=expires)
        try:
            plan = issue_plan(tx, policy, run, plan)
        except PlanTextError as error:
            self._record_refusal(tx, run, summary=str(error), refused_by=RefusedBy.RUNBOOK)
            return
        if run.parent is None:
            submit_plan(self._context, tx, run, plan)
            return
        # The child run waits for the approval of its parent.
        runs.move_run(tx, run, State.PENDING, plan=plan, digest=plan.digest, expires_at=expires)
        if tx.is_first_call(("advance", run.parent)):
            self._context.dispatcher.enqueue_run(tx, run.parent, policy.inventory[run.host].site)

    def _record_refusal(
        self, tx: Transaction, run: Run, *, summary: str, refused_by: RefusedBy
    ) -> None:
        end_run(self._context, tx, run, State.REFUSED, summary, refused_by=refused_by)

    def _record_end(self, tx: Transaction, run: Run, *, state: State, summary: str) -> None:
        end_run(self._context, tx, run, state, summary)


def _raise_process_exit(batch: Sequence[_ReadResult]) -> None:
    """Raise errors that end the process, such as KeyboardInterrupt, without waiting."""
    for _, record in batch:
        if isinstance(record, BaseException) and not isinstance(record, Exception):
            raise record
