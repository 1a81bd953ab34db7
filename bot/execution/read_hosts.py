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
from bot.execution.planner import Remaining, compute_remaining, resolve_plan, run_check
from bot.model.run import Run, State
from bot.policy import NoPolicy
from bot.workflow import stop_reasons
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import RunEnd, end_run, end_runs
from bot.workflow.submit_plan import submit_plan
from connectors.errors import HostError, prefix_host
from runbooks import Refused, Report

log = logging.getLogger(__name__)

# What comes so shortly after each other is recorded together: nobody sees a list grow faster.
_TOGETHER_SECONDS = 0.1

# What comes of a run that is still as it was asked: what its host said, for whoever only looks, or
# what is to be done in the transaction that holds it.
_Record = Callable[[Transaction, Run], None]
_Found = tuple[Run, Report | _Record | BaseException | None]


class HostReader:
    """Reads hosts for what was asked. closing: set when the process is about to end."""

    def __init__(self, parts: WorkflowContext, closing: threading.Event) -> None:
        self._parts, self._closing = parts, closing
        self._crowd = ThreadPoolExecutor(parts.crowd, thread_name_prefix="survey")
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    def taken(self) -> frozenset[int]:
        """Return the runs that are being read just now."""
        with self._lock:
            return frozenset(self._taken)

    def take(self, asked: Sequence[Run], held_up: Collection[int]) -> Sequence[Run]:
        """Read for what was asked and is not read for yet. held_up: which of it is stopped.

        Return those of them that wait for nobody's approval and so may start. Raises what befell
        the first that could not be read, or recorded, once all the others are.
        """
        with self._lock:
            mine = [one for one in asked if one.id not in self._taken]
            self._taken.update(one.id for one in mine)
        try:
            return self._read(mine, held_up)
        finally:
            with self._lock:
                self._taken.difference_update(one.id for one in mine)

    def _read(self, asked: Sequence[Run], held_up: Collection[int]) -> Sequence[Run]:
        found = BatchQueue[_Found](len(asked))
        alone = len(asked) == 1 or self._parts.crowd == 1
        for one in asked:
            bring = partial(self._bring, one, found, is_stopped=one.id in held_up)
            if alone:
                bring()
            else:
                self._crowd.submit(bring)
        troubles: list[Exception] = []
        ready: list[Run] = []
        while found.left:
            # A commit for each would take longer than to wait for the next.
            batch = found.take(within=_TOGETHER_SECONDS)
            _raise_what_ends_us(batch)
            ready += self._recorded(batch, troubles, goes_on=found.left > 0)
        if troubles:
            raise troubles[0]
        return ready

    def _bring(self, run: Run, found: BatchQueue[_Found], *, is_stopped: bool) -> None:
        """Put what is to be recorded of a run among what was found, or what went wrong."""
        record: Report | _Record | BaseException | None = None
        try:
            if not self._closing.is_set():
                record = self._stopped if is_stopped else self._heard(run)
        except BaseException as trouble:  # noqa: BLE001 - whoever waits for it raises it
            record = trouble
        found.bring((run, record))

    def _heard(self, run: Run) -> Report | _Record | None:
        """Read the host; return what comes of that, None if the process ends meanwhile."""
        try:
            if run.kind == "check" and run.timing is None:
                return run_check(self._parts, run)
            left = compute_remaining(self._parts, run, self._parts.policies.current())
            return partial(self._planned, left=left)
        except Refused as refused:
            return partial(self._ended, state=State.REFUSED, summary=str(refused))
        except HostError as trouble:
            # What was cut off because we end is read again at the next start.
            if self._closing.is_set():
                return None
            summary = prefix_host(run.host, str(trouble))
            return partial(self._ended, state=State.FAILED, summary=summary)

    def _recorded(
        self, batch: Sequence[_Found], troubles: list[Exception], *, goes_on: bool
    ) -> Sequence[Run]:
        """Write down what is there. goes_on: others are still being read."""
        troubles += [record for _, record in batch if isinstance(record, Exception)]
        fit = [
            (run, record)
            for run, record in batch
            if isinstance(record, Report) or callable(record)
        ]
        if not fit:
            return ()
        try:
            return self._committed(fit, goes_on=goes_on)
        except (StoreUnavailable, NoPolicy) as trouble:
            if not isinstance(trouble, StoreRefused) or len(fit) == 1:
                troubles.append(trouble)
                return ()
        except Exception as trouble:
            if len(fit) == 1:
                troubles.append(trouble)
                return ()
            log.exception("of %d runs one could not be recorded", len(fit))
        # One of them is at fault, and the others are not to suffer for it.
        return [
            run
            for each in fit
            for run in self._recorded([each], troubles, goes_on=goes_on or each is not fit[-1])
        ]

    def _committed(
        self, batch: Sequence[tuple[Run, Report | _Record]], *, goes_on: bool
    ) -> Sequence[Run]:
        records = {run.id: record for run, record in batch}
        with self._parts.database.transaction() as tx:
            if goes_on:
                # The whole waits for those that are still being read: it need not look now.
                tx.first(("advance", batch[0][0].parent))
            held = runs.lock_runs(tx, [run for run, _ in batch])
            looks: list[RunEnd] = []
            for run in held:
                record = records[run.id]
                if run.state is not State.ASKED:
                    continue
                if isinstance(record, Report):
                    looks.append(RunEnd(run, State.SUCCEEDED, record.summary, report=record))
                else:
                    record(tx, run)
            end_runs(self._parts, tx, looks)
            # A part of a request waits for the approval of the whole, and who looks is done.
            planned = [run.id for run in held if run.parent is None and callable(records[run.id])]
            after = [runs.get_run(tx, number) for number in planned]
        return [run for run in after if run.state is State.READY]

    def _stopped(self, tx: Transaction, held: Run) -> None:
        by = stop_reasons.describe_stop(tx, held, None)
        if by:
            end_run(
                self._parts,
                tx,
                held,
                State.STOPPED,
                stop_reasons.describe_stopped_run(tx, held, by),
            )

    def _planned(self, tx: Transaction, held: Run, *, left: Remaining) -> None:
        policy = self._parts.policies.current()
        if not left.steps and held.timing is None:
            end_run(self._parts, tx, held, State.UNCHANGED, f"No changes: {left.because}")
            return
        expires = tx.now + self._parts.patience + self._parts.unused
        proposal = resolve_plan(self._parts, held, policy, left, expires=expires)
        if held.parent is None:
            submit_plan(self._parts, tx, held, proposal)
            return
        # It waits for the approval of the whole request.
        runs.move_run(
            tx, held, State.WAITING, proposal=proposal, digest=proposal.digest, expires=expires
        )
        if tx.first(("advance", held.parent)):
            self._parts.dispatch.enqueue(tx, held.parent, policy.inventory[held.host].site)

    def _ended(self, tx: Transaction, held: Run, *, state: State, summary: str) -> None:
        end_run(self._parts, tx, held, state, summary)


def _raise_what_ends_us(batch: Sequence[_Found]) -> None:
    """Raise what is no mere trouble: the process is to end, and waits for no other host."""
    for _, record in batch:
        if isinstance(record, BaseException) and not isinstance(record, Exception):
            raise record
