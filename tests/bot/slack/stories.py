"""Stories to draw, in every state that a run can be in."""

from dataclasses import replace
from typing import Any

from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import Origin, Run, State, StepRecord, StepState, Vote
from bot.slack.run_facts import Approver, Story
from connectors.command import Shell
from runbooks import Report, Table

MINUTE = 60_000_000
ASKED = 1_700_000_000_000_000
PAGE = "https://keyturn.example.com/runs/12"


def a_step(**other: Any) -> PlannedStep:
    step = PlannedStep(
        title="Forget 203.0.113.9",
        host="lb1",
        fingerprint="SHA256:x",
        do=Shell(("haproxyctl", "clear", "table", "http", "key", "203.0.113.9")),
        undo=Shell(("haproxyctl", "set", "table", "http", "key", "203.0.113.9")),
        before="marked",
        after="not marked",
    )
    return replace(step, **other)


def a_proposal(*steps: PlannedStep, **other: Any) -> ResolvedPlan:
    proposal = ResolvedPlan(
        runbook="abusers clear",
        runbook_version="0123456789ab",
        fields={"host": "lb1", "address": "203.0.113.9"},
        asked_by="dora",
        expires=ASKED + 480 * MINUTE,
        policy_version="ba9876543210",
        because="203.0.113.9 is marked since 09:12",
        steps=steps or (a_step(),),
        notes=("It may be marked again at once.",),
    )
    return replace(proposal, **other)


def a_run(state: State = State.WAITING, **other: Any) -> Run:
    proposal: ResolvedPlan = other.pop("proposal", a_proposal())
    digest: str = other.pop("digest", None) or proposal.digest
    run = Run(
        id=12,
        version=3,
        state=state,
        words="abusers clear",
        kind="change",
        fields={"host": "lb1", "address": "203.0.113.9"},
        host="lb1",
        area="edge",
        asked_by="dora",
        origin=Origin("slack", "C0OPS", "U0DORA"),
        reason="a customer called",
        request="abusers clear lb1 203.0.113.9",
        asked=ASKED,
        expires=proposal.expires,
        proposal=proposal,
        digest=digest,
        needed=1,
        groups=("owners",),
    )
    return replace(run, **other)


def a_story(run: Run | None = None, **other: Any) -> Story:
    story = Story(
        run or a_run(),
        names={"dora": "Dora Developer", "olga": "Olga Owner", "adam": "Adam Admin"},
        area="the edge",
        whose="the owners of the edge",
        approvers=(Approver("Adam Admin", "U0ADAM"), Approver("Olga Owner", "U0OLGA")),
        asker="U0DORA",
        page=PAGE,
        now=ASKED + MINUTE,
    )
    return replace(story, **other)


def yes(person: str = "olga", **other: Any) -> Vote:
    return replace(Vote(12, person, yes=True, digest="", at=ASKED + MINUTE), **other)


def a_check(report: Report | None) -> Run:
    run = a_run(
        State.SUCCEEDED,
        words="abusers show",
        kind="check",
        request="abusers show lb1",
        report=report,
        summary=report.summary if report else "",
        unwell=bool(report and not report.healthy),
        ended=ASKED + MINUTE,
    )
    return replace(run, proposal=None, digest="", needed=0)


def every_story() -> dict[str, Story]:
    """One story for each state, as the workflow leaves it."""
    ended = {"ended": ASKED + 5 * MINUTE}
    started = {"started": ASKED + 2 * MINUTE}
    sent = StepRecord(12, 1, StepState.INTENT, ASKED + 2 * MINUTE)
    done = replace(sent, state=StepState.SUCCEEDED, status=0, output="ok\n")
    lost = replace(sent, state=StepState.UNKNOWN, trouble="the connection broke")
    empty: dict[str, Any] = {"digest": "", "needed": 0, "proposal": None}
    S = State  # noqa: N806 - a table is read by its columns
    runs: dict[State, tuple[Run, dict[str, Any]]] = {
        S.ASKED: (replace(a_run(S.ASKED), **empty), {}),
        S.WAITING: (a_run(S.WAITING), {}),
        S.READY: (a_run(S.READY, summary="waits for run 7, which holds lb1"), {"votes": [yes()]}),
        S.STARTING: (a_run(S.STARTING), {"votes": [yes()]}),
        S.RUNNING: (a_run(S.RUNNING, **started), {"votes": [yes()], "steps": [sent]}),
        S.SUCCEEDED: (
            a_run(S.SUCCEEDED, summary="Proven by reading again: it is gone", **started, **ended),
            {"votes": [yes()], "steps": [done]},
        ),
        S.FAILED: (
            a_run(S.FAILED, summary="Step 1 of 1 failed: no such table", **started, **ended),
            {"votes": [yes()], "steps": [replace(done, state=StepState.FAILED)]},
        ),
        S.UNKNOWN: (
            a_run(S.UNKNOWN, summary="Nobody knows whether step 1 was done", **started, **ended),
            {"votes": [yes()], "steps": [lost]},
        ),
        S.UNCHANGED: (
            replace(a_run(S.UNCHANGED, summary="No changes: it is gone", **ended), **empty),
            {},
        ),
        S.REFUSED: (a_run(S.REFUSED, summary="the table is not there", **ended), {}),
        S.DENIED: (a_run(S.DENIED, summary="Denied by Olga Owner: not today", **ended), {}),
        S.EXPIRED: (a_run(S.EXPIRED, summary="Nobody decided in time", **ended), {}),
        S.OFFERED: (replace(a_run(S.OFFERED), editors=("olga",), counters=11), {}),
        S.REPLACED: (a_run(S.REPLACED, summary="Replaced by run 13", **ended), {}),
        S.WITHDRAWN: (a_run(S.WITHDRAWN, summary="Withdrawn by its asker", **ended), {}),
        S.STALE: (a_run(S.STALE, summary="lb1 is not as it was", **ended), {"votes": [yes()]}),
        S.STOPPED: (a_run(S.STOPPED, summary="Stopped by Olga Owner (smoke)", **ended), {}),
    }
    return {state.value: a_story(run, **other) for state, (run, other) in runs.items()}


def a_report(**other: Any) -> Report:
    report = Report(
        "2 addresses are marked",
        healthy=False,
        findings=("203.0.113.9 is marked on lb1",),
        table=Table(("address", "since"), (("203.0.113.9", "09:12"), ("203.0.113.10", "10:01"))),
    )
    return replace(report, **other)
