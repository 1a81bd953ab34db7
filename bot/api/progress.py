"""Progress: how far a run is and what its hosts say just now; and its entries, verified."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from bot.api.auth import Reading
from bot.api.deps import Here
from bot.api.schemas import Shape, to_datetime
from bot.api.schemas_in import Number
from bot.audit import run_proof
from bot.db import run_progress, runs
from bot.db.database import Transaction
from bot.db.live_output import LiveOutput
from bot.db.run_progress import RunProgress
from bot.model.run import NEEDS_ATTENTION, State, StepState

router = APIRouter(prefix="/runs/{number}", tags=["runs"])

_GOOD = frozenset({State.SUCCEEDED, State.NO_CHANGES})
_TO_COME = frozenset({State.COUNTER_PROPOSED, State.PENDING})
_UNDER_WAY = frozenset({State.PLANNING, State.QUEUED, State.STARTING, State.RUNNING})
_SAID_AGAIN = 6_000_000

Position = Annotated[int, Query(ge=0, le=2**62)]


class LiveOutputShape(Shape):
    """What a host says while a step runs there. newest: lines; total: how many there were."""

    run: int
    host: str
    step: int
    total: int
    newest: list[str]

    @classmethod
    def of(cls, heard: LiveOutput) -> "LiveOutputShape":
        return cls(
            run=heard.run,
            host=heard.host,
            step=heard.n,
            total=heard.total,
            newest=list(heard.newest),
        )


class ProgressShape(Shape):
    """Counted in hosts where there are several, else in steps.

    position: what to ask with as `after` the next time, for only what was said since; a little
    may come again. live_output: what hosts say just now; when a step is over its output is in the
    plan.
    needs_attention: whether what was looked at needs attention. needing_attention: of those done,
    hosts of which that is so.
    """

    run: int
    state: State
    needs_attention: bool
    ended: bool
    counted_in: str
    total: int
    done: int
    needing_attention: int
    failed: int
    running: int
    upcoming: int
    as_of: datetime
    live_output: list[LiveOutputShape]
    position: int


class ProofShape(Shape):
    """What came of verifying the entries of one run. faults: none if all of them fit."""

    entries: int
    first: int
    last: int
    keys: list[str]
    outputs: int
    erased: int
    faults: list[str]


@router.get("/progress", operation_id="getProgress", summary="Tell how far a run is just now")
def progress(parts: Here, caller: Reading, number: Number, after: Position = 0) -> ProgressShape:
    with parts.database.reading(caller.sight) as tx:
        glance = run_progress.get_run_progress(tx, number)
        counted_in, done, failed, moving, total = _counted(tx, glance)
    return ProgressShape(
        run=number,
        state=glance.whole.state,
        needs_attention=glance.whole.needs_attention,
        ended=glance.whole.is_ended,
        counted_in=counted_in,
        total=total,
        done=done,
        needing_attention=sum(part.status == NEEDS_ATTENTION for part in glance.parts),
        failed=failed,
        running=moving,
        upcoming=total - done - failed - moving,
        as_of=to_datetime(glance.now),
        live_output=[LiveOutputShape.of(one) for one in glance.heard if one.at > after],
        position=max(glance.now - _SAID_AGAIN, 0),
    )


@router.post("/verify", operation_id="verifyRun", summary="Verify the entries of a run")
def verify(parts: Here, caller: Reading, number: Number) -> ProofShape:
    """Each has its hash, its seal and its neighbours. The rest of the log is not looked at."""
    with parts.database.reading(caller.sight) as tx:
        runs.get_run(tx, number)
        found = run_proof.verify_run(tx, number)
    return ProofShape(
        entries=found.entries,
        first=found.first_entry,
        last=found.last_entry,
        keys=list(found.keys),
        outputs=found.valid_outputs,
        erased=found.erased_outputs,
        faults=list(found.faults),
    )


def _counted(tx: Transaction, glance: RunProgress) -> tuple[str, int, int, int, int]:
    """Return what is counted, how many are done, failed and under way, and how many there are."""
    if not glance.parts:
        return _steps(tx, glance.whole.id)
    states: Sequence[State] = [part.state for part in glance.parts]
    done = sum(state in _GOOD for state in states)
    moving = sum(state in _UNDER_WAY for state in states)
    waiting = sum(state in _TO_COME for state in states)
    return "hosts", done, len(states) - done - moving - waiting, moving, len(states)


def _steps(tx: Transaction, number: int) -> tuple[str, int, int, int, int]:
    proposal = runs.get_run(tx, number).plan
    states = [record.state for record in runs.list_steps(tx, number)]
    done = sum(state is StepState.SUCCEEDED for state in states)
    moving = sum(state is StepState.INTENT for state in states)
    total = len(proposal.steps) if proposal else 0
    return "steps", done, len(states) - done - moving, moving, total
