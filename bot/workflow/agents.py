"""Add, confirm, pause, resume and end agents, and create their tokens."""

import re

from bot.audit import change_log, events, followed_log
from bot.auth import agents, tokens
from bot.auth.agents import Agent
from bot.auth.tokens import AGENT_SCOPE, MAX_DAYS, ApiToken
from bot.db import request_rate
from bot.db.database import Transaction
from bot.model.agents import get_agent_id
from bot.model.errors import InvalidRequestError, NoSuchPersonError, NotAllowed, TooLate
from bot.model.plain_text import check_line
from bot.model.times import DAY
from bot.workflow import agent_limits, stopping
from bot.workflow.context import WorkflowContext
from bot.workflow.tokens import check_days, log_token

_NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,39}", re.ASCII)
_MAX_PURPOSE_LENGTH = 200


class AgentActions:
    """What people may do about agents. Methods raise InvalidRequestError, NotAllowed and TooLate.

    An agent is added by one person and confirmed by another, and both may resume what others
    stopped. person: "" on the command line, where pausing and ending needs no right.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def add_agent(self, name: str, *, owner: str, purpose: str, days: int, person: str) -> Agent:
        """Add an agent, which may do nothing until another person confirms it."""
        if not _NAME_PATTERN.fullmatch(name):
            raise InvalidRequestError(
                "the name of an agent has up to 40 lower-case letters, digits and hyphens: "
                "triage-bot"
            )
        purpose = check_line(purpose, name="the purpose", max_length=_MAX_PURPOSE_LENGTH)
        if not purpose:
            raise InvalidRequestError("state the purpose of the agent")
        if not 1 <= days <= MAX_DAYS:
            raise InvalidRequestError(f"an agent ends after 1 to {MAX_DAYS} days, not {days}")
        self._check_person(owner)
        self._check_may_manage(person)
        with self._context.database.transaction() as tx:
            is_new = agents.add_agent(
                tx,
                name=name,
                owner=owner,
                purpose=purpose,
                added_by=person,
                ends_at=tx.now + days * DAY,
            )
            if not is_new:
                raise InvalidRequestError(
                    f"there is or was an agent {name}, and names are never reused: choose another"
                )
            change_log.append_entry(
                tx,
                events.AgentAdded(agent=name, owner=owner, purpose=purpose, days=days),
                person=person,
            )
            return _get_agent(tx, name)

    def confirm_agent(self, name: str, *, person: str) -> Agent:
        """Confirm an agent that another person added."""
        with self._context.database.reading() as tx:
            is_own = _get_agent(tx, name).added_by == person
        self._check_may_manage(person, is_own=is_own)
        if is_own:
            raise NotAllowed(f"you added {name}: another person has to confirm it")
        with self._context.database.transaction() as tx:
            agent = _lock_agent(tx, name)
            if agent.get_state(tx.now) != "pending":
                raise TooLate(f"the agent {name} is {agent.get_state(tx.now)}")
            agents.update_agent(tx, name, confirmed_by=person, confirmed_at=tx.now)
            change_log.append_entry(
                tx, events.AgentConfirmed(agent=name, owner=agent.owner), person=person
            )
            return _get_agent(tx, name)

    def pause_agent(self, name: str, *, person: str, reason: str) -> Agent:
        """Let an agent make no request until a person resumes it. Its open runs continue."""
        reason = stopping.check_stop_reason(reason)
        with self._context.database.transaction() as tx:
            agent = _lock_agent(tx, name)
            if agent.get_state(tx.now) in {"paused", "ended"}:
                raise TooLate(f"the agent {name} is {agent.get_state(tx.now)} already")
            agent_limits.pause_agent(tx, name, person=person, reason=reason)
            return _get_agent(tx, name)

    def stop_agent(self, name: str, *, person: str, reason: str) -> list[int]:
        """Pause an agent and stop its open runs; return their numbers."""
        reason = stopping.check_stop_reason(reason)
        with self._context.database.transaction() as tx:
            if _lock_agent(tx, name).paused_at is None:
                agent_limits.pause_agent(tx, name, person=person, reason=reason)
            numbers = request_rate.list_unfinished(tx, person=get_agent_id(name))
        stopped: list[int] = []
        for number in numbers:
            try:
                stopping.stop_run(self._context, number, person=person, reason=reason)
            except TooLate:
                continue
            stopped.append(number)
        return stopped

    def resume_agent(self, name: str, *, person: str, reason: str) -> Agent:
        """Resume a paused agent. The person who paused it cannot."""
        reason = stopping.check_stop_reason(reason)
        with self._context.database.reading() as tx:
            is_own = _get_agent(tx, name).paused_by == person
        self._check_may_manage(person, is_own=is_own)
        with self._context.database.transaction() as tx:
            agent = _lock_agent(tx, name)
            if agent.paused_at is None:
                raise TooLate(f"the agent {name} is not paused")
            agents.update_agent(
                tx, name, paused_at=None, paused_by=None, pause_reason=None, resumed_at=tx.now
            )
            change_log.append_entry(
                tx, events.AgentResumed(agent=name, reason=reason), person=person
            )
            return _get_agent(tx, name)

    def end_agent(self, name: str, *, person: str, reason: str) -> Agent:
        """End an agent for good. What it requested does not start."""
        reason = stopping.check_stop_reason(reason)
        with self._context.database.transaction() as tx:
            if _lock_agent(tx, name).ended_at is not None:
                raise TooLate(f"the agent {name} has ended already")
            agents.update_agent(tx, name, ended_at=tx.now)
            tokens.revoke_all_tokens(tx, get_agent_id(name))
            change_log.append_entry(
                tx, events.AgentEnded(agent=name, reason=reason), person=person
            )
            # Read the entry now, so that deleting it later is noticed.
            followed_log.follow_log(tx)
            return _get_agent(tx, name)

    def create_token(self, name: str, *, behalf: str, days: int) -> tuple[ApiToken, str]:
        """Create a token of an agent; return its record and the token, which is not stored.

        behalf: the person that it acts for; "" for none.
        """
        check_days(days)
        if behalf:
            self._check_person(behalf)
        with self._context.database.transaction() as tx:
            agent = _get_agent(tx, name)
            if refusal := agent.get_refusal(tx.now, ignores_pause=True):
                raise InvalidRequestError(refusal)
            expires_at = min(tx.now + days * DAY, agent.ends_at)
            made, secret = tokens.add_token(
                tx,
                person=get_agent_id(name),
                scopes=[AGENT_SCOPE],
                name=name,
                expires_at=expires_at,
                behalf=behalf,
            )
            log_token(tx, events.TokenCreated, made, "", "cli", days)
        return made, secret

    def _check_person(self, person: str) -> None:
        policy = self._context.policies.get_policy()
        if policy.find_person(person) is None:
            raise NoSuchPersonError(person)

    def _check_may_manage(self, person: str, *, is_own: bool = False) -> None:
        stopping.check_order_allowed(
            self._context, person, "resume", is_own=is_own, requires_factor=False
        )


def _get_agent(tx: Transaction, name: str) -> Agent:
    return _check_found(agents.find_agent(tx, name), name)


def _lock_agent(tx: Transaction, name: str) -> Agent:
    return _check_found(agents.lock_agent(tx, name), name)


def _check_found(agent: Agent | None, name: str) -> Agent:
    if agent is None:
        raise InvalidRequestError(f"there is no agent {name}: `keyturn agent list` lists them")
    return agent
