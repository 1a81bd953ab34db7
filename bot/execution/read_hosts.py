"""The survey: what hosts say to a request that was just asked, and what comes of that.

The parts of a request that are at one site are read at once, by a thread each. What has come
meanwhile is recorded in one transaction, so that many hosts take few commits.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bot.db import runs
from bot.db.database import StoreRefused, StoreUnavailable, Transaction
from bot.execution.batches import BatchQueue
from bot.execution.planner import RemainingWork, compute_remaining, resolve_plan, run_check
from bot.model.run import Run, State
from bot.policy import NoPolicyError
from bot.workflow import stop_reasons
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import RunEnd, end_run, end_runs
from bot.workflow.submit_plan import submit_plan
from connectors.errors import HostError, prefix_host
from runbooks import Refused, Report

log = logging.getLogger(__name__)

# What comes so shortly after each other is recorded together: nobody sees a list grow faster.
_BATCH_SECONDS = 0.1

# What comes of a run that is still as it was asked: what its host said, for whoever only looks, or
# what is to be done in the transaction that holds it.
_RecordResult = Callable[[Transaction, Run], None]
_ReadResult = tuple[Run, Report | _RecordResult | BaseException | None]


class HostReader:
    """Reads hosts for what was asked. closing: set when the process is about to end."""

    def __init__(self, context: WorkflowContext, closing: threading.Event) -> None:
        self._context, self._closing = context, closing
        self._pool = ThreadPoolExecutor(context.max_parallel_hosts, thread_name_prefix="survey")
        self._lock = threading.Lock()
        self._being_read: set[int] = set()

    def list_runs_being_read(self) -> frozenset[int]:
        """Return the runs that are being read just now."""
        with self._lock:
            return frozenset(self._being_read)

    def read_hosts(self, runs_to_plan: Sequence[Run], stopped: Collection[int]) -> Sequence[Run]:
        """Read for what was asked and is not read for yet. held_up: which of it is stopped.

        Return those of them that wait for nobody's approval and so may start. Raises what befell
        the first that could not be read, or recorded, once all the others are.
        """
        with self._lock:
            mine = [one for one in runs_to_plan if one.id not in self._being_read]
            self._being_read.update(one.id for one in mine)
        try:
            return self._read_and_record(mine, stopped)
        finally:
            with self._lock:
                self._being_read.difference_update(one.id for one in mine)

    def _read_and_record(
        self, runs_to_plan: Sequence[Run], stopped: Collection[int]
    ) -> Sequence[Run]:
        found = BatchQueue[_ReadResult](len(runs_to_plan))
        alone = len(runs_to_plan) == 1 or self._context.max_parallel_hosts == 1
        for one in runs_to_plan:
            bring = partial(self._put_result, one, found, is_stopped=one.id in stopped)
            if alone:
                bring()
            else:
                self._pool.submit(bring)
        troubles: list[Exception] = []
        ready: list[Run] = []
        while found.remaining:
            # A commit for each would take longer than to wait for the next.
            batch = found.take_batch(seconds=_BATCH_SECONDS)
            _raise_process_exit(batch)
            ready += self._record_batch(batch, troubles, has_more=found.remaining > 0)
        if troubles:
            raise troubles[0]
        return ready

    def _put_result(self, run: Run, results: BatchQueue[_ReadResult], *, is_stopped: bool) -> None:
        """Put what is to be recorded of a run among what was found, or what went wrong."""
        record: Report | _RecordResult | BaseException | None = None
        try:
            if not self._closing.is_set():
                record = self._record_stop if is_stopped else self._read_host(run)
        except BaseException as trouble:  # noqa: BLE001 - whoever waits for it raises it
            record = trouble
        results.put_item((run, record))

    def _read_host(self, run: Run) -> Report | _RecordResult | None:
        """Read the host; return what comes of that, None if the process ends meanwhile."""
        try:
            if run.kind == "check" and run.timing is None:
                return run_check(self._context, run)
            left = compute_remaining(self._context, run, self._context.policies.get_policy())
            return partial(self._record_plan, remaining=left)
        except Refused as refused:
            return partial(self._record_end, state=State.REFUSED, summary=str(refused))
        except HostError as trouble:
            # What was cut off because we end is read again at the next start.
            if self._closing.is_set():
                return None
            summary = prefix_host(run.host, str(trouble))
            return partial(self._record_end, state=State.FAILED, summary=summary)

    def _record_batch(
        self, batch: Sequence[_ReadResult], errors: list[Exception], *, has_more: bool
    ) -> Sequence[Run]:
        """Write down what is there. goes_on: others are still being read."""
        errors += [record for _, record in batch if isinstance(record, Exception)]
        fit = [
            (run, record)
            for run, record in batch
            if isinstance(record, Report) or callable(record)
        ]
        if not fit:
            return ()
        try:
            return self._commit_batch(fit, has_more=has_more)
        except (StoreUnavailable, NoPolicyError) as trouble:
            if not isinstance(trouble, StoreRefused) or len(fit) == 1:
                errors.append(trouble)
                return ()
        except Exception as trouble:
            if len(fit) == 1:
                errors.append(trouble)
                return ()
            log.exception("of %d runs one could not be recorded", len(fit))
        # One of them is at fault, and the others are not to suffer for it.
        return [
            run
            for each in fit
            for run in self._record_batch([each], errors, has_more=has_more or each is not fit[-1])
        ]

    def _commit_batch(
        self, batch: Sequence[tuple[Run, Report | _RecordResult]], *, has_more: bool
    ) -> Sequence[Run]:
        records = {run.id: record for run, record in batch}
        with self._context.database.transaction() as tx:
            if has_more:
                # The whole waits for those that are still being read: it need not look now.
                tx.first(("advance", batch[0][0].parent))
            held = runs.lock_runs(tx, [run for run, _ in batch])
            looks: list[RunEnd] = []
            for run in held:
                record = records[run.id]
                if run.state is not State.PLANNING:
                    continue
                if isinstance(record, Report):
                    looks.append(RunEnd(run, State.SUCCEEDED, record.summary, report=record))
                else:
                    record(tx, run)
            end_runs(self._context, tx, looks)
            # A part of a request waits for the approval of the whole, and who looks is done.
            planned = [run.id for run in held if run.parent is None and callable(records[run.id])]
            after = [runs.get_run(tx, number) for number in planned]
        return [run for run in after if run.state is State.QUEUED]

    def _record_stop(self, tx: Transaction, run: Run) -> None:
        by = stop_reasons.describe_stop(tx, run, None)
        if by:
            end_run(
                self._context,
                tx,
                run,
                State.STOPPED,
                stop_reasons.describe_stopped_run(tx, run, by),
            )

    def _record_plan(self, tx: Transaction, run: Run, *, remaining: RemainingWork) -> None:
        policy = self._context.policies.get_policy()
        if not remaining.steps and run.timing is None:
            end_run(
                self._context, tx, run, State.NO_CHANGES, f"No changes: {remaining.current_state}"
            )
            return
        expires = tx.now + self._context.approval_timeout + self._context.start_timeout
        proposal = resolve_plan(self._context, run, policy, remaining, expires_at=expires)
        if run.parent is None:
            submit_plan(self._context, tx, run, proposal)
            return
        # It waits for the approval of the whole request.
        runs.move_run(
            tx, run, State.PENDING, plan=proposal, digest=proposal.digest, expires_at=expires
        )
        if tx.first(("advance", run.parent)):
            self._context.dispatcher.enqueue_run(tx, run.parent, policy.inventory[run.host].site)

    def _record_end(self, tx: Transaction, run: Run, *, state: State, summary: str) -> None:
        end_run(self._context, tx, run, state, summary)


def _raise_process_exit(batch: Sequence[_ReadResult]) -> None:
    """Raise what is no mere trouble: the process is to end, and waits for no other host."""
    for _, record in batch:
        if isinstance(record, BaseException) and not isinstance(record, Exception):
            raise record
