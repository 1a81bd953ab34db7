"""Answer alerts: run the checks that fit, and post one message when they have ended.

An answer is claimed in the database before anything runs, so that a message is answered once,
whichever process receives it, and however often it arrives.
"""

import asyncio
import hashlib
import logging
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bot.auth import agents
from bot.db import runs
from bot.db.database import StoreUnavailable, Transaction
from bot.db.runs import NoSuchRun
from bot.features.alerts import fitting, rows
from bot.features.alerts.findings import read_findings
from bot.features.alerts.fitting import Requester
from bot.features.alerts.messages import Alert, AlertState, read_alert
from bot.features.alerts.render import render_answer
from bot.features.alerts.rows import Answer, AnswerKey
from bot.model.agents import AgentOrigin, get_agent_id, get_agent_name, is_agent
from bot.model.errors import NotAllowed, TooManyRequestsError
from bot.model.plain_request import Suggestion
from bot.model.request_form import RequestSyntaxError, parse_values
from bot.model.run import RequestOrigin, RequestTerms
from bot.model.times import HOUR, MINUTE, SECOND
from bot.policy import NoPolicyError, Policy
from bot.slack.blocks import Message
from bot.slack.client import (
    CALL_ERRORS,
    CLOSED_CHANNEL_ERRORS,
    get_error_cause,
    get_retry_seconds,
    is_unreachable,
)
from bot.slack.features import AppMessage, ChatContext
from bot.slack.payloads import MessageShortcut
from bot.slack.replies import build_text_reply
from connectors.errors import DomainError

_log = logging.getLogger(__name__)

REASON = "Read for an alert"
# Of one channel and about one subject: alerts come in storms, and are repeated.
_MAX_A_MINUTE, _REPEATED_WITHIN = 5, HOUR
# What has not ended by then is left out, with a link.
_WAIT_SECONDS = 45
_CLAIM_SECONDS, _POST_SECONDS = 60.0, 30.0
_POLL_SECONDS, _IDLE_SECONDS = 0.5, 20.0
_MAX_ATTEMPTS = 8
_CLOCK_TOLERANCE_SECONDS = 300


@dataclass(frozen=True)
class _Draft:
    """What an answer consists of, before it is claimed."""

    hosts: Sequence[str]
    checks: Sequence[Suggestion]
    plans: Sequence[Suggestion]


class AlertAnswers:
    """Starts answers in threads, and posts them in the event loop."""

    def __init__(self, context: ChatContext) -> None:
        self._context, self._database = context, context.database
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    # --- start ---

    def answer_shortcut(self, shortcut: MessageShortcut, person: str, policy: Policy) -> Message:
        """Start the answer that a person asks for; return what to tell this person now."""
        return build_text_reply(self._start_answer(shortcut, person, policy))

    def _start_answer(self, shortcut: MessageShortcut, person: str, policy: Policy) -> str:
        alert = read_alert(shortcut.message, policy.inventory.hosts)
        if not alert.hosts:
            return (
                "Keyturn found no host of the inventory in this message. Choose what to do with "
                "“Run on this host”, or type /keyturn."
            )
        covered = self._list_covered(policy, shortcut.channel, alert.hosts)
        hosts = covered or alert.hosts
        draft = self._draft(alert, policy, hosts, Requester(person), planners=[person])
        if not draft.checks and not draft.plans:
            return f"Nothing that you may request fits this alert on {', '.join(hosts)}."
        user = "" if covered else shortcut.account.user
        answer = self._build_answer(
            AnswerKey(shortcut.channel, shortcut.ts, user),
            shortcut.thread or shortcut.ts,
            person,
            draft,
            alert,
        )
        with self._database.transaction() as tx:
            if not rows.claim_answer(tx, answer, seconds=_CLAIM_SECONDS):
                return "Keyturn answers this alert already: see the thread of the message."
        origin = RequestOrigin(fitting.SOURCE, shortcut.channel, shortcut.account.user)
        self._request_checks(answer, draft.checks, origin)
        where = (
            "The answer comes in the thread of the message"
            if covered
            else "Only you get the answer, since this is not the channel of the area"
        )
        return f"Keyturn reads {', '.join(draft.hosts)}. {where}."

    def answer_message(self, message: AppMessage) -> None:
        """Answer the message of a program, if the area of its host asks for that."""
        policy = self._context.policies.get_policy()
        agents_of = {
            name: area.alert_agent
            for name, area in policy.organisation.areas.items()
            if area.alert_agent and area.channel == message.channel
        }
        if not agents_of:
            return
        alert = read_alert(message.content, policy.inventory.hosts)
        areas = {host: policy.inventory[host].area for host in alert.hosts}
        hosts = [host for host in alert.hosts if areas[host] in agents_of]
        if alert.state is not AlertState.FIRING or not hosts:
            return
        # Of hosts in several areas, those of the first one.
        hosts = [host for host in hosts if areas[host] == areas[hosts[0]]]
        requester = self._find_agent(agents_of[areas[hosts[0]]])
        if requester is None:
            return
        owners = policy.organisation.areas[areas[hosts[0]]].owners
        draft = self._draft(alert, policy, hosts, requester, planners=owners)
        if not draft.checks:
            return
        answer = self._build_answer(
            AnswerKey(message.channel, message.ts), message.ts, requester.id, draft, alert
        )
        with self._database.transaction() as tx:
            if self._is_too_much(tx, answer) or not rows.claim_answer(
                tx, answer, seconds=_CLAIM_SECONDS
            ):
                return
        origin = RequestOrigin(fitting.SOURCE, message.channel, agent=requester.agent)
        if not self._request_checks(answer, draft.checks, origin):
            with self._database.transaction() as tx:
                rows.mark_posted(tx, answer.key, "")

    def _list_covered(self, policy: Policy, channel: str, hosts: Sequence[str]) -> list[str]:
        """Return the hosts whose area has this channel."""
        return [
            host
            for host in hosts
            if channel == (policy.get_area(host).channel or self._context.default_channel)
        ]

    def _find_agent(self, name: str) -> Requester | None:
        """Return an agent that may make requests now."""
        with self._database.reading() as tx:
            agent = agents.find_agent(tx, name)
            refusal = agent.get_refusal(tx.now) if agent else "there is no such agent"
        if agent is None or refusal:
            _log.warning("alerts are not answered: agent %s: %s", name, refusal)
            return None
        return Requester(get_agent_id(name), AgentOrigin(agent.owner))

    def _draft(
        self,
        alert: Alert,
        policy: Policy,
        hosts: Sequence[str],
        requester: Requester,
        *,
        planners: Sequence[str],
    ) -> _Draft:
        """Find what to read and what to suggest. planners: who may request what is suggested."""
        shown = hosts[: fitting.MAX_HOSTS]
        with self._database.reading() as tx:
            now = tx.now
        checks = fitting.find_checks(
            alert,
            policy,
            shown,
            lambda one: fitting.is_free_to_request(policy, one, requester, now=now),
        )
        plans = fitting.find_plans(
            alert,
            policy,
            shown,
            lambda one: any(
                fitting.may_request(policy, one, person, now=now) for person in planners
            ),
        )
        return _Draft(shown, checks, plans)

    def _build_answer(
        self, key: AnswerKey, thread: str, person: str, draft: _Draft, alert: Alert
    ) -> Answer:
        about = "\0".join([key.channel, *draft.hosts, *alert.words, *alert.values.values()])
        subject = hashlib.sha256(about.encode()).hexdigest()[:32]
        plans = [shlex.join(one.list_words()) for one in draft.plans]
        return Answer(key, thread, person, draft.hosts, subject, plans)

    def _is_too_much(self, tx: Transaction, answer: Answer) -> bool:
        """Return whether a storm of alerts goes on, or the alert is a repeated one."""
        count = partial(rows.count_recent, tx, answer.key.channel)
        return (
            count(since=tx.now - MINUTE) >= _MAX_A_MINUTE
            or count(since=tx.now - _REPEATED_WITHIN, subject=answer.subject) > 0
        )

    def _request_checks(
        self, answer: Answer, checks: Sequence[Suggestion], origin: RequestOrigin
    ) -> Sequence[int]:
        """Request the checks, and have the answer posted once they have ended."""
        terms = RequestTerms(answer.person, origin, REASON)
        requested: list[int] = []
        for check in checks:
            try:
                runbook = parse_values(check.runbook, check.values)
                requested.append(self._context.service.request_run(runbook, terms).id)
            except (NotAllowed, TooManyRequestsError) as refusal:
                _log.warning("no further check for an alert: %s", refusal)
                break
            except (DomainError, RequestSyntaxError) as refusal:
                _log.info("a check for an alert is left out: %s", refusal)
        with self._database.transaction() as tx:
            rows.store_runs(tx, answer.key, requested)
        self._wake_up()
        return requested

    def _wake_up(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    # --- post ---

    async def run_until_cancelled(self) -> None:
        """Post answers until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            is_waiting = await self.post_ready()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS if is_waiting else _IDLE_SECONDS):
                    await self._woken.wait()

    async def post_ready(self) -> bool:
        """Post the answers that are ready; return whether others wait."""
        try:
            opened, ready = await asyncio.to_thread(self._list_open)
            for answer in ready:
                await self._post(answer)
        except (NoPolicyError, StoreUnavailable) as error:
            _log.warning("no answer to an alert is posted: %s", error)
            return False
        return opened > len(ready)

    def _list_open(self) -> tuple[int, Sequence[Answer]]:
        """Return how many answers are open, and those that can be posted now."""
        with self._database.reading() as tx:
            opened = rows.list_open(tx)
            ready = [one for one in opened if one.due_at <= tx.now and self._is_ready(tx, one)]
        return len(opened), ready

    def _is_ready(self, tx: Transaction, answer: Answer) -> bool:
        if tx.now - answer.claimed_at > _WAIT_SECONDS * SECOND:
            return True
        return answer.runs is not None and all(run.is_ended for run in _list_runs(tx, answer))

    async def _post(self, answer: Answer) -> None:
        message = await asyncio.to_thread(self._lease_and_render, answer)
        if message is None:
            return
        sender, key = self._context.sender, answer.key
        try:
            if key.user:
                await sender.send_ephemeral(key.channel, key.user, message)
                ts = key.ts
            else:
                posted = await sender.post_message(key.channel, message, thread=answer.thread)
                ts = posted.ts
        except CALL_ERRORS as error:
            await asyncio.to_thread(self._postpone, answer, error)
        else:
            await asyncio.to_thread(self._in_transaction, rows.mark_posted, key, ts)

    def _lease_and_render(self, answer: Answer) -> Message | None:
        """Return what to post; None if another process posts it."""
        policy = self._context.policies.get_policy()
        with self._database.transaction() as tx:
            if not rows.lease_answer(tx, answer, seconds=_POST_SECONDS):
                return None
            findings = read_findings(
                tx, policy, answer, default_channel=self._context.default_channel
            )
        builder = self._context.view_builder
        since = answer.claimed_at / SECOND - _CLOCK_TOLERANCE_SECONDS if answer.attempts else None
        return render_answer(
            answer,
            findings,
            requester=get_agent_name(answer.person)
            if is_agent(answer.person)
            else policy.get_person_name(answer.person),
            base_url=builder.base_url,
            search_since=since,
        )

    def _postpone(self, answer: Answer, error: Exception) -> None:
        """Try again later, unless that cannot help or might post the answer twice."""
        cause = get_error_cause(error)
        seconds = get_retry_seconds(error)
        can_search = is_agent(answer.person)
        is_safe = seconds is not None or (is_unreachable(error) and can_search)
        if not is_safe or answer.attempts + 1 >= _MAX_ATTEMPTS:
            level = logging.INFO if cause in CLOSED_CHANNEL_ERRORS else logging.WARNING
            _log.log(level, "an answer to an alert is given up: %s", cause)
            self._in_transaction(rows.mark_posted, answer.key, "")
            return
        wait = seconds if seconds is not None else 2.0**answer.attempts
        self._in_transaction(partial(rows.postpone_answer, seconds=wait), answer.key)

    def _in_transaction(self, write: Callable[..., None], *args: object) -> None:
        with self._database.transaction() as tx:
            write(tx, *args)


def _list_runs(tx: Transaction, answer: Answer) -> list[runs.Run]:
    found: list[runs.Run] = []
    for number in answer.runs or ():
        with suppress(NoSuchRun):
            found.append(runs.get_run(tx, number))
    return found
