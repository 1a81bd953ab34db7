"""Beginning: an approved request for a schedule becomes a schedule."""

from bot.policy import NoPolicy
from bot.run import Run, State
from bot.store import changelog, runs, schedules
from bot.store.database import Transaction
from bot.store.schedules import Schedule, Standing
from bot.workflow import gate
from bot.workflow.ending import end
from bot.workflow.parts import Parts


def begin_alone(parts: Parts, number: int) -> None:
    """Begin the schedule that a request for one host was approved for."""
    with parts.database.transaction() as tx:
        run = runs.hold(tx, number)
        if run.state is State.READY:
            begin(parts, tx, run)


def begin(parts: Parts, tx: Transaction, run: Run) -> Run:
    """Let it fire from now on. Whoever may do that is looked up again, as before any packet."""
    if run.timing is None or run.proposal is None:
        raise ValueError(f"run {run.id} is not a request for a schedule")
    try:
        gate.authorise(parts, tx, run, parts.policies.current())
    except NoPolicy as trouble:
        return end(parts, tx, run, State.REFUSED, f"There is no valid policy: {trouble}")
    except gate.Shut as shut:
        return gate.shut_out(parts, tx, run, shut)
    # Held before the log is: who fires it holds it first, and then the log.
    old = schedules.hold(tx, run.timing.replaces) if run.timing.replaces else None
    keepers = _keepers(parts, tx, old) if old is not None else ()
    # Nobody has approved what takes no approval, nor that it takes another's place.
    if not run.needed and keepers and run.asked_by not in keepers:
        why = f"Schedule {run.timing.replaces} is kept by its owner and its area's"
        names = map(parts.policies.current().name_person, keepers)
        return end(parts, tx, run, State.REFUSED, f"{why}: {', '.join(names)}")
    schedule = schedules.add(
        tx,
        run=run.id,
        owner=run.asked_by,
        timing=run.timing,
        lapses=tx.now + run.proposal.lapse,
    )
    changelog.append(
        tx,
        "scheduled",
        run=run.id,
        person=run.asked_by,
        host=run.host,
        schedule=schedule.id,
        timing=run.timing.document,
        digest=run.digest,
        lapses=schedule.lapses,
    )
    if old is not None and old.standing is not Standing.ENDED:
        why = f"schedule {schedule.id} took its place"
        schedules.stand(tx, old, Standing.ENDED, why)
        changelog.append(tx, "schedule ended", run=old.run, schedule=old.id, why=why)
    started = runs.move(tx, runs.move(tx, run, State.STARTING), State.RUNNING, started=tx.now)
    return end(parts, tx, started, State.SUCCEEDED, f"Schedule {schedule.id} fires from now on")


def _keepers(parts: Parts, tx: Transaction, old: Schedule) -> list[str]:
    """Return who may end a schedule; nobody if it has ended, or is kept by nobody any more."""
    policy = parts.policies.current()
    if old.standing is Standing.ENDED or policy.person(old.owner) is None:
        return []
    area = policy.household.areas.get(runs.get(tx, old.run).area)
    return sorted({old.owner, *(area.owners if area else ())})
