"""A dossier: all that is known of one run, and what the person who looks may do about it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db import break_glass as db_break_glass
from bot.db import grants, live_output, locks, runs, stops
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.db.live_output import LiveOutput
from bot.db.locks import Lock
from bot.model.plan import PlannedStep
from bot.model.run import BEFORE_INTENT, Run, State, StepRecord, StepState, Vote
from bot.policy import Person, Request
from bot.web.auth import Visitor
from bot.web.fanout_chart import Fan, fan
from bot.workflow.approval_count import count_approvals
from bot.workflow.approvals import is_vote_complete
from bot.workflow.break_glass import can_review
from bot.workflow.break_glass_rules import why_not_break_glass
from bot.workflow.delegation_rules import list_current_delegates
from bot.workflow.pending import can_decide, can_settle
from bot.workflow.schedule_facts import ScheduleFacts, get_schedule_facts
from bot.workflow.second_factor import get_shown_factor
from bot.workflow.stopping import can_stop


@dataclass(frozen=True)
class Powers:
    """What the visitor may do now. why_no_undo: "" where the question does not arise."""

    approve: bool = False
    deny: bool = False
    withdraw: bool = False
    settle: bool = False
    undo: bool = False
    why_no_undo: str = ""
    break_glass: bool = False
    review: bool = False
    accept: bool = False
    counter: bool = False
    stop: bool = False

    @property
    def any(self) -> bool:
        return (
            self.approve
            or self.deny
            or self.withdraw
            or self.settle
            or self.undo
            or self.review
            or self.stop
        )


@dataclass(frozen=True)
class Dossier:
    """approvers: everybody whose approval would count. delegates: who else could, and for whom.
    granted: the grant that stands in for the approvals, and how many are left of it. whose: the
    groups whose approval it takes, in words. missing: how many more it takes while it waits.

    holder: the lock on the run's host. now: the database's time. wants_step_up: an approval takes
    a second factor. stepped_up: the visitor has just shown theirs. heard: what hosts say just now,
    or said last before nobody listened any more. schedule: what is approved, of a request for one.
    proposals: the open counter-proposals for it, by their numbers.
    """

    run: Run
    votes: Sequence[Vote]
    records: Mapping[int, StepRecord]
    entries: Sequence[Entry]
    holder: Lock | None
    approvers: Sequence[Person]
    delegates: Sequence[tuple[str, str]]
    granted: tuple[Grant, int] | None
    whose: str
    missing: int
    powers: Powers
    parts: Sequence[Run]
    glass: BreakGlass | None
    wants_step_up: bool
    stepped_up: bool
    heard: Sequence[LiveOutput]
    schedule: ScheduleFacts | None
    proposals: Sequence[int]
    now: int

    @property
    def steps(self) -> Sequence[tuple[int, PlannedStep, StepRecord | None]]:
        planned = self.run.proposal.steps if self.run.proposal else ()
        return [(n, step, self.records.get(n)) for n, step in enumerate(planned, start=1)]

    @property
    def keys(self) -> Sequence[Vote]:
        return [vote for vote in self.votes if vote.yes]

    @property
    def fan(self) -> Fan | None:
        """How far a request for several hosts is."""
        run = self.run
        if not self.parts:
            return None
        return fan(self.parts, started=run.started, ended=run.ended, now=self.now)

    @property
    def stamp(self) -> str:
        """Short digits that differ whenever the page would show something else."""
        parts = [(part.id, part.version) for part in self.parts]
        return f"{self.rest}-{_digits(parts)}"

    @property
    def rest(self) -> str:
        """Short digits that differ whenever all but its hosts would show something else."""
        head = self.entries[-1].hash if self.entries else ""
        seen = (self.run.version, head, len(self.votes), self.holder, self.powers, self.proposals)
        return _digits((*seen, self.stepped_up))

    @property
    def hosts_drawn(self) -> str:
        """How its hosts are drawn: before anything of it has begun, others wait for people."""
        return "begun" if self.run.started else "before"


def _digits(seen: object) -> str:
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def gather(tx: Transaction, number: int, visitor: Visitor) -> Dossier:
    """Read it all in one consistent state. Raises NoSuchRun."""
    run = runs.get_run(tx, number)
    votes = runs.list_votes(tx, number)
    told = runs.list_steps_of_children(tx, number) if run.hosts else runs.list_steps(tx, number)
    records = {record.n: record for record in told}
    policy = visitor.policy
    counted = count_approvals(tx, policy, run)
    request, ruling = counted.request, counted.ruling
    known = run.host in policy.inventory.hosts
    broken = db_break_glass.get_break_glass(tx, run.id)
    return Dossier(
        run=run,
        votes=votes,
        records=records,
        entries=change_log.list_entries_of_run(tx, number),
        holder=locks.get_lock(tx, run.host),
        approvers=policy.approvers(request, ruling) if run.state in BEFORE_INTENT else (),
        delegates=list_current_delegates(tx, policy, request, ruling)
        if run.state in BEFORE_INTENT
        else (),
        granted=_granted(tx, run),
        whose=policy.whose(ruling.terms) if known and ruling.groups else "",
        # As long as it waits there is a key to turn, whatever the rules say by now.
        missing=max(counted.missing, 1),
        powers=_powers(tx, run, votes, list(records.values()), visitor),
        parts=runs.list_children(tx, number) if run.hosts else (),
        glass=broken,
        wants_step_up=ruling.step_up,
        stepped_up=bool(get_shown_factor(tx, policy, person=visitor.id, session=visitor.session)),
        heard=() if run.over else live_output.get_live_output(tx, number),
        schedule=get_schedule_facts(tx, run),
        proposals=runs.open_proposals(tx, number) if run.state is State.WAITING else (),
        now=tx.now,
    )


def _granted(tx: Transaction, run: Run) -> tuple[Grant, int] | None:
    if run.grant is None:
        return None
    given = grants.get_grant(tx, run.grant)
    return given, grants.count_left(tx, given, run.id)


def _powers(
    tx: Transaction,
    run: Run,
    votes: Sequence[Vote],
    records: Sequence[StepRecord],
    visitor: Visitor,
) -> Powers:
    begun = run.state not in BEFORE_INTENT
    # A part of a request for several hosts is decided with the whole.
    decides = run.parent is None and not begun and can_decide(tx, visitor.policy, run, visitor.id)
    refuses = decides or (bool(run.editors) and _may_refuse(tx, run, visitor))
    voted = any(
        vote.person == visitor.id and is_vote_complete(tx, visitor.policy, run, vote)
        for vote in votes
    )
    why_no_undo = _why_no_undo(run, records, visitor, now=tx.now)
    return Powers(
        approve=decides and not voted and run.state is State.WAITING,
        deny=refuses,
        accept=run.state is State.OFFERED and run.asked_by == visitor.id,
        counter=decides
        and run.state is State.WAITING
        and run.undo_of is None
        and run.timing is None,
        withdraw=not begun and run.asked_by == visitor.id and run.parent is None,
        settle=can_settle(visitor.policy, run, visitor.id),
        undo=_did_something(run, records) and not why_no_undo,
        why_no_undo=why_no_undo,
        break_glass=_may_break_glass(tx, run, visitor),
        review=_may_review(tx, run, visitor),
        stop=_may_stop(tx, run, visitor),
    )


def _may_refuse(tx: Transaction, run: Run, visitor: Visitor) -> bool:
    """Say whether the visitor's no counts: it does of an owner who edited the values, too."""
    if run.parent is not None or run.state not in BEFORE_INTENT:
        return False
    return can_decide(tx, visitor.policy, replace(run, editors=()), visitor.id)


def _may_stop(tx: Transaction, run: Run, visitor: Visitor) -> bool:
    """Say whether the visitor may end a run that was let through, or is about to be."""
    moving = run.state in {State.READY, State.STARTING, State.RUNNING} and run.parent is None
    stopped = stops.get_stop_of_run(tx, run) is not None
    return moving and not stopped and can_stop(visitor.policy, run, visitor.id)


def _may_break_glass(tx: Transaction, run: Run, visitor: Visitor) -> bool:
    """Say whether the visitor's request waits for what broken glass goes through."""
    policy = visitor.policy
    if run.state not in {State.WAITING, State.READY} or run.host not in policy.inventory.hosts:
        return False
    frozen = policy.frozen(host=run.host, runbook=run.words, now=tx.now)
    held_up = run.state is State.WAITING or bool(frozen)
    broken = db_break_glass.get_break_glass(tx, run.id)
    done = broken is not None and broken.broken is not None
    return held_up and not done and not why_not_break_glass(policy, run, visitor.id, now=tx.now)


def _may_review(tx: Transaction, run: Run, visitor: Visitor) -> bool:
    broken = db_break_glass.get_break_glass(tx, run.id)
    if broken is None or broken.review_due is None:
        return False
    return can_review(visitor.policy, run, visitor.id, now=tx.now)


def _did_something(run: Run, records: Sequence[StepRecord]) -> bool:
    done = any(record.state is not StepState.FAILED for record in records)
    return run.kind == "change" and run.over and run.proposal is not None and done


def _why_no_undo(run: Run, records: Sequence[StepRecord], visitor: Visitor, *, now: int) -> str:
    """Say why the visitor cannot ask to take back what was done; "" if they can."""
    if not _did_something(run, records) or run.proposal is None:
        return ""
    if run.undo_of is not None:
        return "This run is itself an undo: ask for the original anew instead."
    lasting = [step for step in run.proposal.steps if step.undo is None]
    if lasting:
        return f"“{lasting[0].title}” cannot be undone: {lasting[0].no_undo}."
    request = Request(
        runbook=run.words, kind=run.kind, host=run.host, door="web", asked_by=visitor.id, now=now
    )
    ruling = visitor.policy.may_ask(request)
    if ruling.allowed:
        return ""
    return f"The policy does not let you ask for it: {'; '.join(ruling.says) or 'no rule does'}."
