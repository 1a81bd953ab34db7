"""Runs in every state, put into the store as the service would have left them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.audit import change_log, events
from bot.db import outputs, runs
from bot.db.database import Database, Transaction
from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Decision, RequestOrigin, Run, State, StepRecord, StepState
from connectors.command import Shell
from runbooks import Report, Table

# No policy in force is of this version: nobody approves a plan that was made by it.
ANOTHER_POLICY = "1" * 12
KEY = "SHA256:n7dnLm1mOlH1pVBGCpMRuOyCBIXk0eUdBqyvN8K5F5k"
SOCKET = ("socat", "-t", "5", "-", "UNIX-CONNECT:/run/haproxy/admin.sock")


def clear_step(host: str = "lb1", address: str = "203.0.113.9", n: int = 1) -> PlannedStep:
    return PlannedStep(
        title=f"Let {address} back in" if n == 1 else f"Let {address} back in (table {n})",
        host=host,
        fingerprint=KEY,
        command=Shell(SOCKET, stdin=f"clear table http{n} key {address}\n"),
        undo=Shell(SOCKET, stdin=f"set table http{n} key {address} data.gpc0 1\n"),
        before="marked as abuser, gpc0=1",
        after="not in the table",
    )


def build_plan(
    run: Run, *steps: PlannedStep, because: str = "", policy_version: str = ANOTHER_POLICY
) -> ResolvedPlan:
    return ResolvedPlan(
        runbook=run.runbook,
        runbook_version="0" * 12,
        values=run.values,
        requested_by=run.requested_by,
        expires_at=run.requested_at + 8 * 3600 * 1_000_000,
        policy_version=policy_version,
        current_state=because or "203.0.113.9 is marked in http, gpc0=1, for 42 more minutes",
        steps=steps or (clear_step(run.host),),
        notes=("Its next bad request marks it again.",),
        run=run.id,
        reason=run.reason,
    )


def add_requested_run(
    tx: Transaction,
    *,
    words: str = "abusers clear",
    fields: Mapping[str, str] | None = None,
    host: str = "lb1",
    person: str = "dora",
    reason: str = "a customer's office, ticket 4711",
    kind: str = "change",
    undo_of: int | None = None,
    plan_only: bool = False,
    source: str = "slack",
    channel: str = "C1",
    user: str = "U1",
) -> Run:
    given = {"host": host, "address": "203.0.113.9"} if fields is None else fields
    run = runs.add_run(
        tx,
        runs.NewRun(
            runbook=words,
            kind=kind,
            values=given,
            host=host,
            area="edge",
            requested_by=person,
            origin=RequestOrigin(source, channel, user),
            reason=reason,
            undo_of=undo_of,
            plan_only=plan_only,
            request=" ".join([words, *given.values()]),
        ),
    )
    event_type = events.PlanRequested if plan_only else events.Requested
    requested = event_type(
        runbook=words, values=given, request=run.request, source="slack", reason=reason
    )
    change_log.append_entry(tx, requested, run=run, person=person)
    return run


def add_planned_run(tx: Transaction, *, policy_version: str = ANOTHER_POLICY) -> Run:
    """Add a plan that nobody has requested."""
    run = add_requested_run(tx, plan_only=True)
    return add_pending_run(
        tx, run, build_plan(run, policy_version=policy_version), state=State.PLANNED
    )


def add_pending_run(
    tx: Transaction,
    run: Run,
    proposal: ResolvedPlan | None = None,
    needed: int = 1,
    state: State = State.PENDING,
) -> Run:
    plan = proposal or build_plan(run)
    change_log.append_entry(
        tx,
        events.Planned(
            digest=plan.digest,
            plan=plan.log_facts,
            required_approvals=needed,
            approver_groups=("owners",),
        ),
        run=run.id,
        host=run.host,
    )
    shown = runs.amend_run(tx, run, plan=plan, digest=plan.digest, expires_at=plan.expires_at)
    return runs.move_run(
        tx,
        shown,
        state,
        required_approvals=needed,
        approver_groups=("owners",),
        policy_notes=("Developers may request any change; an owner of the area approves it.",),
    )


def approve(tx: Transaction, run: Run, person: str = "olga", reason: str = "") -> Run:
    runs.add_decision(tx, Decision(run.id, person, True, run.digest, tx.now, reason))
    change_log.append_entry(
        tx,
        events.Approved(digest=run.digest, reason=reason),
        run=run.id,
        person=person,
        host=run.host,
    )
    return runs.move_run(tx, run, State.QUEUED)


def start_run(tx: Transaction, run: Run) -> Run:
    starting = runs.move_run(tx, run, State.STARTING)
    change_log.append_entry(tx, events.Claimed(), run=run.id, host=run.host)
    moved = runs.move_run(tx, starting, State.RUNNING, started_at=tx.now)
    change_log.append_entry(tx, events.Started(digest=run.digest), run=run.id, host=run.host)
    runs.record_intent(tx, run.id, 1)
    change_log.append_entry(
        tx, events.StepSending(step=1, title="the first step"), run=run.id, host=run.host
    )
    return moved


def end_run(
    tx: Transaction, run: Run, state: StepState, *, output: str = "", trouble: str = "", n: int = 1
) -> None:
    status = {StepState.SUCCEEDED: 0, StepState.FAILED: 1}.get(state)
    runs.record_outcome(
        tx, StepRecord(run.id, n, state, 0, tx.now + 340_000, status, output, trouble)
    )
    stored = outputs.prepare_output(tx, output)
    ended = events.STEP_ENDS[state](
        step=n, exit_status=status, error=trouble, output_sha256=stored.sha256
    )
    entry = change_log.append_entry(tx, ended, run=run)
    outputs.store_outputs(tx, n, [(entry.seq, run.id, stored)])


def add_ended_run(
    tx: Transaction, run: Run, state: State, summary: str, person: str = "", **facts: Any
) -> Run:
    done = runs.move_run(tx, run, state, ended_at=tx.now + 1_300_000, summary=summary)
    ended = events.RUN_ENDS[state](summary=summary, **facts)
    change_log.append_entry(tx, ended, run=run, person=person)
    return done


def add_succeeded_run(tx: Transaction, run: Run) -> Run:
    moving = start_run(tx, approve(tx, add_pending_run(tx, run)))
    end_run(tx, moving, StepState.SUCCEEDED, output="\n")
    change_log.append_entry(
        tx, events.Verified(current_state="203.0.113.9 is not marked"), run=run.id, host=run.host
    )
    return add_ended_run(tx, moving, State.SUCCEEDED, "Verified: 203.0.113.9 is not marked")


def add_check(tx: Transaction, report: Report | None = None) -> Run:
    run = add_requested_run(
        tx, words="abusers show", fields={"host": "lb1"}, kind="check", reason=""
    )
    report_made = report or Report(
        "2 addresses are marked as abusers on lb1",
        healthy=False,
        findings=(
            "203.0.113.9 is marked for 42 more minutes",
            "198.51.100.7 comes again and again",
        ),
        table=Table(
            ("address", "table", "gpc0", "expires in"),
            (("203.0.113.9", "http", "1", "42 min"), ("198.51.100.7", "http", "7", "59 min")),
        ),
    )
    stored = outputs.prepare_report(tx, report_made)
    begun = runs.amend_run(
        tx, run, started_at=run.requested_at, needs_attention=not report_made.healthy
    )
    done = add_ended_run(
        tx,
        begun,
        State.SUCCEEDED,
        report_made.summary,
        healthy=report_made.healthy,
        output_sha256=stored.sha256,
    )
    [entry] = change_log.list_newest_entries(tx, limit=1)
    outputs.store_outputs(tx, 0, [(entry.seq, run.id, stored)])
    return replace(done, report=report_made)


def add_sample_runs(database: Database) -> dict[str, int]:
    """Put one run of each kind on show, and return their numbers."""
    shown: dict[str, int] = {}
    with database.transaction() as tx:
        shown["checked"] = add_check(tx).id
        shown["succeeded"] = add_succeeded_run(tx, add_requested_run(tx)).id
        shown["denied"] = add_ended_run(
            tx,
            add_pending_run(tx, add_requested_run(tx, host="lb2", person="adam", reason="")),
            State.DENIED,
            "Olga Owner denied it: wait for the holidays to end",
            "olga",
        ).id
        shown["no_changes"] = add_ended_run(
            tx, add_requested_run(tx, host="lb2"), State.NO_CHANGES, "it is not marked"
        ).id
        run = add_requested_run(tx, host="lb2", reason="")
        shown["stale"] = add_ended_run(
            tx,
            add_pending_run(tx, run),
            State.STALE,
            "After the plan was made, lb2 has changed: 203.0.113.9 is marked in http and api.",
        ).id
        moving = start_run(
            tx, approve(tx, add_pending_run(tx, add_requested_run(tx)), reason="known customer")
        )
        output = "bash: line 1: socat: command not found\n" * 3
        trouble = "the program is not there (output: socat: command not found)"
        end_run(tx, moving, StepState.FAILED, output=output, trouble=trouble)
        shown["failed"] = add_ended_run(
            tx, moving, State.FAILED, f"Step 1 of 1 failed: {trouble}."
        ).id
        moving = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx, host="lb2"))))
        end_run(tx, moving, StepState.UNKNOWN, trouble="lb2 closed the connection")
        shown["unknown"] = add_ended_run(
            tx,
            moving,
            State.UNKNOWN,
            "The outcome of step 1 of 1 is unknown: lb2 closed the connection. "
            "lb2 stays locked until an owner resolves this run.",
        ).id
        run = add_requested_run(tx)
        two = build_plan(run, clear_step(), clear_step(n=2))
        shown["running"] = start_run(tx, approve(tx, add_pending_run(tx, run, two))).id
        shown["queued"] = approve(tx, add_pending_run(tx, add_requested_run(tx, host="web1"))).id
        shown["pending"] = add_pending_run(tx, add_requested_run(tx)).id
        shown["own"] = add_pending_run(
            tx, add_requested_run(tx, person="olga", reason="my own")
        ).id
        shown["planning"] = add_requested_run(tx, host="web1").id
    return shown
