"""The brakes of agents: how much they may request, and when they are paused."""

from bot.audit import change_log, events, refusals
from bot.auth import agents
from bot.auth.agents import Agent
from bot.db import request_rate, runs
from bot.db.database import Transaction
from bot.db.runs import NewRun
from bot.model.agents import get_agent_name, is_agent
from bot.model.errors import NotAllowed, TooManyRequestsError
from bot.model.run import Run
from bot.model.times import HOUR

MAX_REQUESTS_AN_HOUR, MAX_OPEN_REQUESTS, DENIALS_UNTIL_PAUSE = 30, 5, 3


def find_identical_request(tx: Transaction, run: NewRun | Run) -> Run | None:
    """Return an agent's open request that is the same as this one; None for people.

    Locks the agent, so that two requests at the same time become one.
    """
    if not is_agent(run.requested_by):
        return None
    agents.lock_agent(tx, get_agent_name(run.requested_by))
    same = request_rate.find_open_request(tx, person=run.requested_by, request=run.request)
    found = runs.get_run(tx, same) if same is not None else None
    return found if found and _get_behalf(found) == _get_behalf(run) else None


def get_agent_refusal(tx: Transaction, run: NewRun | Run) -> str:
    """Return why an agent may not request this now, and log it; "" if it may."""
    name = get_agent_name(run.requested_by)
    agent = agents.lock_agent(tx, name)
    refusal = _describe_refusal(tx, run, agent)
    if refusal:
        refusals.log_person_refusal(
            tx, events.AgentRefused(reason=refusal, runbook=run.runbook), person=run.requested_by
        )
    return refusal


def check_may_request_plan(tx: Transaction, run: Run) -> None:
    """Raise NotAllowed or TooManyRequestsError unless an agent may request what a plan shows."""
    agent = agents.lock_agent(tx, get_agent_name(run.requested_by))
    if agent is None or agent.get_refusal(tx.now):
        raise NotAllowed(agent.get_refusal(tx.now) if agent else "there is no such agent")
    if refusal := _describe_excess(tx, run, with_rate=False):
        raise TooManyRequestsError(refusal)


def pause_after_denials(tx: Transaction, run: Run) -> None:
    """Pause the agent whose request is about to be denied, if it is one denial too many."""
    if not is_agent(run.requested_by):
        return
    name = get_agent_name(run.requested_by)
    agent = agents.lock_agent(tx, name)
    if agent is None or agent.paused_at is not None:
        return
    since = agent.resumed_at or agent.added_at
    denied = request_rate.count_denied(tx, person=run.requested_by, since=since) + 1
    if denied >= DENIALS_UNTIL_PAUSE:
        pause_agent(tx, name, person="", reason=f"{denied} of its requests were denied")


def pause_agent(tx: Transaction, name: str, *, person: str, reason: str) -> None:
    """Pause an agent whose row is locked. person: "" for Keyturn and the command line."""
    agents.update_agent(
        tx, name, paused_at=tx.now, paused_by=person, pause_reason=reason, resumed_at=None
    )
    change_log.append_entry(tx, events.AgentPaused(agent=name, reason=reason), person=person)


def _describe_refusal(tx: Transaction, run: NewRun | Run, agent: Agent | None) -> str:
    if agent is None:
        return f"there is no agent {get_agent_name(run.requested_by)}"
    if run.timing is not None or run.guard_override:
        return "an agent cannot request schedules and overrides of the redundancy guard"
    return agent.get_refusal(tx.now) or _describe_excess(tx, run, with_rate=True)


def _describe_excess(tx: Transaction, run: NewRun | Run, *, with_rate: bool) -> str:
    recent = request_rate.count_requests(
        tx, person=run.requested_by, words=run.runbook, since=tx.now - HOUR
    ).by_person
    if with_rate and recent >= MAX_REQUESTS_AN_HOUR:
        return f"an agent makes {MAX_REQUESTS_AN_HOUR} requests an hour at most: try again later"
    is_only_plan = with_rate and run.plan_only
    open_count = request_rate.count_open(tx, person=run.requested_by)
    if not is_only_plan and open_count >= MAX_OPEN_REQUESTS:
        return (
            f"{open_count} requests of this agent are open, and {MAX_OPEN_REQUESTS} are allowed: "
            "wait for their end, or withdraw one"
        )
    return ""


def _get_behalf(run: NewRun | Run) -> str:
    return run.origin.agent.behalf if run.origin.agent else ""
