"""Progress and live output of a run, and verification of its log entries."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas import OutputModel, to_datetime
from bot.api.schemas_in import RunId
from bot.audit import entry_proof, run_proof
from bot.db import run_progress, runs
from bot.db.database import Transaction
from bot.db.run_progress import RunProgress
from bot.model.run import NEEDS_ATTENTION, State, StepState
from bot.model.run_states import OUTCOMES, Outcome, get_run_display

router = APIRouter(prefix="/runs/{number}", tags=["runs"])

_COUNTED_AS: Mapping[Outcome, str] = {
    Outcome.SUCCEEDED: "done",
    Outcome.NEEDS_ATTENTION: "done",
    Outcome.FAILED: "failed",
    Outcome.UNKNOWN: "failed",
    Outcome.NOT_RUN: "not_run",
    Outcome.IN_PROGRESS: "running",
    Outcome.NOT_STARTED: "upcoming",
}
# Microseconds of live output that a caller with `after` gets again, so that none is missed.
_OVERLAP = 6_000_000

Position = Annotated[
    int, Query(ge=0, le=2**62, description="The `position` of the previous response.")
]


class LiveOutputOut(OutputModel):
    """Output of a step that is running."""

    run: int
    host: str
    step: int = Field(validation_alias="n")
    total: int = Field(description="Number of lines so far.")
    newest: list[str] = Field(description="The newest lines.")


class ProgressOut(OutputModel):
    """How far a run is, in hosts if it has several, otherwise in steps."""

    run: int
    state: State
    label: str = Field(description="The state as pages, chat and terminal show it.")
    needs_attention: bool
    ended: bool
    counted_in: str = Field(description="`hosts` or `steps`.")
    total: int
    done: int
    needing_attention: int = Field(description="Number of done hosts that need attention.")
    failed: int = Field(description="Number that failed, or whose outcome is unknown.")
    not_run: int = Field(description="Number that ended before they were done, without an error.")
    running: int
    upcoming: int
    as_of: datetime
    live_output: list[LiveOutputOut] = Field(
        description="Of running steps; the output of ended steps is in the plan."
    )
    position: int = Field(
        description="Send it as `after` to get only newer output; a few lines may repeat."
    )


class CheckpointOut(OutputModel):
    """A signed checkpoint of the change log."""

    size: int
    root: str
    note: str = Field(description="As a signed note, the format of C2SP.")


class RunVerificationOut(OutputModel):
    """Result of verifying the log entries of one run."""

    entries: int
    first: int = Field(validation_alias="first_entry", description="Number of the first entry.")
    last: int = Field(validation_alias="last_entry")
    checkpoint: CheckpointOut | None = Field(
        description="The newest checkpoint of the log, which covers the entries."
    )
    outputs: int = Field(
        validation_alias="valid_outputs",
        description="Number of stored outputs that match their hash.",
    )
    erased: int = Field(validation_alias="erased_outputs", description="Number of erased outputs.")
    errors: list[str] = Field(validation_alias="faults")


class RunProofOut(OutputModel):
    """Proof of one entry of a run."""

    entry: int = Field(description="Number of the entry.")
    kind: str
    proof: str = Field(description="In the format tlog-proof of C2SP.")


class RunProofsOut(OutputModel):
    """Proofs of a run, all under the same checkpoint."""

    proofs: list[RunProofOut]


@router.get("/progress", operation_id="getProgress", summary="Get progress and live output")
def get_progress(
    parts: Parts, caller: ReadCaller, number: RunId, after: Position = 0
) -> ProgressOut:
    with parts.database.reading(caller.view_rights) as tx:
        progress = run_progress.get_run_progress(tx, number)
        counts = _count(tx, progress)
    return ProgressOut(
        run=number,
        state=progress.run.state,
        label=get_run_display(progress.run).label,
        needs_attention=progress.run.needs_attention,
        ended=progress.run.is_ended,
        needing_attention=sum(part.status == NEEDS_ATTENTION for part in progress.children),
        **counts,
        as_of=to_datetime(progress.now),
        live_output=[
            LiveOutputOut.model_validate(output)
            for output in progress.live_outputs
            if output.at > after
        ],
        position=max(progress.now - _OVERLAP, 0),
    )


@router.post("/verify", operation_id="verifyRun", summary="Verify a run's log entries")
def verify_run(parts: Parts, caller: ReadCaller, number: RunId) -> RunVerificationOut:
    """Checks that each entry has its hash and is under the signed root of the log."""
    with parts.database.reading(caller.view_rights) as tx:
        runs.get_run(tx, number)
        return RunVerificationOut.model_validate(run_proof.verify_run(tx, number))


@router.get("/proof", operation_id="proveRun", summary="Get proofs of a run")
def prove_run(parts: Parts, caller: ReadCaller, number: RunId) -> RunProofsOut:
    """Who requested, planned and approved it, and how it ended. Anyone can verify the proofs
    without the log, for example with docs/verify_changelog.py.
    """
    with parts.database.reading(caller.view_rights) as tx:
        proofs = entry_proof.build_run_proofs(tx, number)
    shown = [
        RunProofOut(entry=one.entry.seq, kind=one.entry.kind, proof=one.proof) for one in proofs
    ]
    return RunProofsOut(proofs=shown)


def _count(tx: Transaction, progress: RunProgress) -> dict[str, Any]:
    """Return what is counted, how many there are, and how many of them are how far."""
    if not progress.children:
        return _count_steps(tx, progress.run.id)
    counted = Counter(_COUNTED_AS[OUTCOMES[part.status]] for part in progress.children)
    names = dict.fromkeys(_COUNTED_AS.values(), 0)
    return {"counted_in": "hosts", "total": len(progress.children), **names, **counted}


def _count_steps(tx: Transaction, run_id: int) -> dict[str, Any]:
    plan = runs.get_run(tx, run_id).plan
    states = [record.state for record in runs.list_steps(tx, run_id)]
    done = sum(state is StepState.SUCCEEDED for state in states)
    running = sum(state is StepState.INTENT for state in states)
    total = len(plan.steps) if plan else 0
    return {
        "counted_in": "steps",
        "total": total,
        "done": done,
        "failed": len(states) - done - running,
        "not_run": 0,
        "running": running,
        "upcoming": total - len(states),
    }
