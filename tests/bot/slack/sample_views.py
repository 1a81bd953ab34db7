"""Run views in every state, for tests of cards."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Decision, RequestOrigin, Run, State, StepRecord, StepState
from bot.model.waiting import Waiting, WaitingFor
from bot.queries.pending import CounterProposal
from bot.queries.run_view import RunView
from bot.slack.run_facts import Approver, SlackRunView
from connectors.command import Shell
from runbooks import Report, Table

MINUTE = 60_000_000
ASKED = 1_700_000_000_000_000
PAGE = "https://keyturn.example.com/runs/12"


def build_step(**other: Any) -> PlannedStep:
    step = PlannedStep(
        title="Forget 203.0.113.9",
        host="lb1",
        fingerprint="SHA256:x",
        command=Shell(("haproxyctl", "clear", "table", "http", "key", "203.0.113.9")),
        undo=Shell(("haproxyctl", "set", "table", "http", "key", "203.0.113.9")),
        before="marked",
        after="not marked",
    )
    return replace(step, **other)


def build_plan(*steps: PlannedStep, **other: Any) -> ResolvedPlan:
    proposal = ResolvedPlan(
        runbook="abusers clear",
        runbook_version="0123456789ab",
        values={"host": "lb1", "address": "203.0.113.9"},
        requested_by="dora",
        expires_at=ASKED + 480 * MINUTE,
        policy_version="ba9876543210",
        current_state="203.0.113.9 is marked since 09:12",
        steps=steps or (build_step(),),
        notes=("It may be marked again at once.",),
    )
    return replace(proposal, **other)


def build_run(state: State = State.PENDING, **other: Any) -> Run:
    proposal: ResolvedPlan = other.pop("proposal", build_plan())
    digest: str = other.pop("digest", None) or proposal.digest
    run = Run(
        id=12,
        version=3,
        state=state,
        runbook="abusers clear",
        kind="change",
        values={"host": "lb1", "address": "203.0.113.9"},
        host="lb1",
        area="edge",
        requested_by="dora",
        origin=RequestOrigin("slack", "C0OPS", "U0DORA"),
        reason="a customer called",
        request="abusers clear lb1 203.0.113.9",
        requested_at=ASKED,
        expires_at=proposal.expires_at,
        plan=proposal,
        digest=digest,
        required_approvals=1,
        approver_groups=("owners",),
    )
    return replace(run, **other)


def build_run_view(run: Run | None = None, **other: Any) -> SlackRunView:
    """Return a view of a run. other: fields of the view, and of what only chat needs."""
    run_view = SlackRunView(
        RunView(
            run or build_run(),
            now=ASKED + MINUTE,
            approvals_from="the owners of the edge",
            missing_approvals=1,
        ),
        person_names={"dora": "Dora Developer", "olga": "Olga Owner", "adam": "Adam Admin"},
        area_title="the edge",
        approvers=(Approver("Adam Admin", "U0ADAM"), Approver("Olga Owner", "U0OLGA")),
        requester="U0DORA",
        page_url=PAGE,
    )
    return replace_facts(run_view, **other)


def replace_facts(run_view: SlackRunView, **other: Any) -> SlackRunView:
    """Return the view with other fields. step_records: a sequence; the rest as in both classes."""
    if "step_records" in other:
        records: Sequence[StepRecord] = other["step_records"]
        other["step_records"] = {record.step_number: record for record in records}
    of_all = {one.name for one in fields(RunView)} & other.keys()
    view = replace(run_view.view, **{name: other.pop(name) for name in of_all - {"approvers"}})
    return replace(run_view, view=view, **other)


def build_children(parent: Run, *, ended: int, running: int = 0) -> Sequence[Run]:
    """Return child runs of a parent: the first have ended, the next are running."""
    states = [State.SUCCEEDED] * ended + [State.RUNNING] * running
    states += [State.QUEUED] * (len(parent.hosts) - len(states))
    return [
        replace(parent, id=parent.id + n, host=host, hosts=(), parent=parent.id, state=state)
        for n, (host, state) in enumerate(zip(parent.hosts, states, strict=True), start=1)
    ]


def build_approval(person: str = "olga", **other: Any) -> Decision:
    return replace(
        Decision(12, person, approves=True, digest="", decided_at=ASKED + MINUTE), **other
    )


def build_check(report: Report | None) -> Run:
    run = build_run(
        State.SUCCEEDED,
        runbook="abusers show",
        kind="check",
        request="abusers show lb1",
        report=report,
        summary=report.summary if report else "",
        needs_attention=bool(report and not report.healthy),
        ended_at=ASKED + MINUTE,
    )
    return replace(run, plan=None, digest="", required_approvals=0)


def _build_proposal() -> Run:
    return replace(build_run(State.COUNTER_PROPOSED), editors=("olga",), proposal_for=11)


_COUNTER_PROPOSAL = CounterProposal(
    _build_proposal(), "olga", ASKED, "only www is attacked", {"table": ("http", "www")}
)


def build_run_view_of_each_state() -> dict[str, SlackRunView]:
    """A view of a run in each state, as the service leaves it."""
    ended = {"ended_at": ASKED + 5 * MINUTE}
    started = {"started_at": ASKED + 2 * MINUTE}
    sent = StepRecord(12, 1, StepState.INTENT, ASKED + 2 * MINUTE)
    done = replace(sent, state=StepState.SUCCEEDED, exit_status=0, output="ok\n")
    lost = replace(sent, state=StepState.UNKNOWN, error="the connection broke")
    empty: dict[str, Any] = {"digest": "", "required_approvals": 0, "plan": None}
    S = State  # noqa: N806 - a table is read by its columns
    runs: dict[State, tuple[Run, dict[str, Any]]] = {
        S.PLANNING: (replace(build_run(S.PLANNING), **empty), {}),
        S.PLANNED: (build_run(S.PLANNED, plan_only=True), {}),
        S.PENDING: (build_run(S.PENDING), {}),
        S.QUEUED: (
            build_run(S.QUEUED, waiting=Waiting(WaitingFor.LOCK, "lb1", run=7)),
            {"decisions": [build_approval()]},
        ),
        S.STARTING: (build_run(S.STARTING), {"decisions": [build_approval()]}),
        S.RUNNING: (
            build_run(S.RUNNING, **started),
            {"decisions": [build_approval()], "step_records": [sent]},
        ),
        S.SUCCEEDED: (
            build_run(S.SUCCEEDED, summary="Verified: it is gone", **started, **ended),
            {"decisions": [build_approval()], "step_records": [done]},
        ),
        S.FAILED: (
            build_run(S.FAILED, summary="Step 1 of 1 failed: no such table", **started, **ended),
            {
                "decisions": [build_approval()],
                "step_records": [replace(done, state=StepState.FAILED)],
            },
        ),
        S.UNKNOWN: (
            build_run(
                S.UNKNOWN, summary="Nobody knows whether step 1 was done", **started, **ended
            ),
            {"decisions": [build_approval()], "step_records": [lost]},
        ),
        S.NO_CHANGES: (
            replace(build_run(S.NO_CHANGES, summary="it is gone", **ended), **empty),
            {},
        ),
        S.REFUSED: (build_run(S.REFUSED, summary="the table is not there", **ended), {}),
        S.DENIED: (build_run(S.DENIED, summary="Olga Owner denied it: not today", **ended), {}),
        S.EXPIRED: (build_run(S.EXPIRED, summary="Nobody decided in time", **ended), {}),
        S.COUNTER_PROPOSED: (_build_proposal(), {"counter_proposal": _COUNTER_PROPOSAL}),
        S.SUPERSEDED: (
            build_run(S.SUPERSEDED, summary="Run 13 replaces it", **ended),
            {},
        ),
        S.WITHDRAWN: (build_run(S.WITHDRAWN, summary="The requester withdrew it", **ended), {}),
        S.STALE: (
            build_run(S.STALE, summary="lb1 is not as it was", **ended),
            {"decisions": [build_approval()]},
        ),
        S.STOPPED: (build_run(S.STOPPED, summary="Olga Owner stopped it (smoke)", **ended), {}),
    }
    return {state.value: build_run_view(run, **other) for state, (run, other) in runs.items()}


def build_report(**other: Any) -> Report:
    report = Report(
        "2 addresses are marked",
        healthy=False,
        findings=("203.0.113.9 is marked on lb1",),
        table=Table(("address", "since"), (("203.0.113.9", "09:12"), ("203.0.113.10", "10:01"))),
    )
    return replace(report, **other)
