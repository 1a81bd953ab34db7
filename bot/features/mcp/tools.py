"""The eight tools of agents. None of them decides anything."""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CLIENT_INFO_META_KEY, ToolAnnotations
from pydantic import Field

from bot import observability
from bot.db import runs
from bot.db.runs import NoSuchRun
from bot.features.mcp.deps import AgentCaller, McpParts, find_caller
from bot.features.mcp.results import (
    ChangeList,
    ChangeResult,
    RunbookDetails,
    RunbookList,
    RunbookResult,
    RunResult,
    UntrustedText,
    fence_text,
)
from bot.model import request_form, times
from bot.model.run import RequestTerms, Run, is_at_rest
from bot.model.runbook_info import list_runbook_info
from bot.queries import timeline
from bot.queries.run_view import build_run_view
from connectors.errors import DomainError
from runbooks._catalogue import get_kind

T = TypeVar("T")

MAX_WAIT_SECONDS, _POLL_SECONDS = 30.0, 0.3
# Callers beyond these numbers get a result immediately.
_MAX_WAITING, MAX_WAITING_OF_OWNER = 100, 10
_MAX_RUNBOOKS, _MAX_HOSTS, _MAX_CHANGES = 50, 200, 50
_MAX_CLIENT_LENGTH = 80
_PATTERN_CHARACTERS = re.compile(r"[*?@\[]")

RequestText = Annotated[
    str,
    Field(
        max_length=1000,
        description="The runbook and its values as typed in chat, hosts by name: "
        "`abusers clear lb1 203.0.113.9`.",
    ),
]
ReasonText = Annotated[
    str, Field(min_length=3, max_length=1000, description="Why. People read it with the request.")
]
RunNumber = Annotated[int, Field(ge=1, le=2_147_483_647, description="The number of a run.")]
TicketKey = Annotated[
    str, Field(max_length=64, description="Approved change ticket, where a rule needs one.")
]
WaitSeconds = Annotated[
    float,
    Field(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for it to end or need people."),
]
READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
REQUESTS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
WITHDRAWS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


class AgentTools:
    """The tools, each as a method whose name, parameters and docstring agents are shown."""

    def __init__(self, parts: McpParts) -> None:
        self._parts = parts
        self._waiting = Counter[str]()

    def find_runbooks(
        self,
        search: Annotated[
            str, Field(max_length=200, description="Words of its name or summary; all if empty.")
        ] = "",
    ) -> RunbookList:
        """Find runbooks: checks only read, changes are planned and approved first."""
        words = search.lower().split()
        found = [
            info
            for info in list_runbook_info()
            if all(word in f"{info.name} {info.summary}".lower() for word in words)
        ]
        return RunbookList(runbooks=[*map(RunbookResult.from_info, found[:_MAX_RUNBOOKS])])

    def describe(
        self, runbook: Annotated[str, Field(max_length=80, description="Its name.")]
    ) -> RunbookDetails:
        """Describe one runbook: its fields, an example, its undo and its hosts."""
        with _explain_errors():
            policy = self._parts.policies.get_policy()
            name = " ".join(runbook.lower().split())
            info = next((one for one in list_runbook_info(name) if one.name == name), None)
            if info is None:
                raise ToolError(f"there is no runbook {name!r}: find_runbooks lists them")
        hosts = policy.inventory.list_tagged(info.tag or None)
        return RunbookDetails(
            **vars(RunbookResult.from_info(info)),
            example=info.example,
            undo=info.undo,
            fields=dict(info.fields),
            hosts=sorted(host.name for host in hosts)[:_MAX_HOSTS],
        )

    async def check(
        self, context: Context, request: RequestText, reason: ReasonText, wait: WaitSeconds = 20
    ) -> RunResult:
        """Run a check, which only reads hosts, and wait for its result."""
        return await self._request_and_wait(context, request, reason, wait, kind="check")

    async def plan(
        self,
        context: Context,
        request: RequestText,
        reason: ReasonText,
        ticket: TicketKey = "",
        wait: WaitSeconds = 20,
    ) -> RunResult:
        """Plan a change: steps, undo, and who would have to approve it. Nothing is requested."""
        return await self._request_and_wait(
            context, request, reason, wait, kind="change", ticket=ticket
        )

    async def request(
        self,
        context: Context,
        run: RunNumber,
        digest: Annotated[
            str,
            Field(
                pattern=r"^[0-9a-f]{10,64}$", description="The digest of the plan that you read."
            ),
        ],
        reason: ReasonText,
    ) -> RunResult:
        """Request what a plan shows. It returns at once; people approve or deny it."""

        def act(caller: AgentCaller) -> RunResult:
            self._check_own(caller, run)
            requested = self._parts.service.request_plan(
                run, person=caller.id, digest=digest, reason=reason
            )
            return self._read_run(caller, requested.id)

        return await self._call(context, act)

    async def status(self, context: Context, run: RunNumber, wait: WaitSeconds = 0) -> RunResult:
        """Return a run as it is now, or once it ends or needs people."""

        def find_owner(caller: AgentCaller) -> str:
            self._read_run(caller, run)
            return caller.agent.owner

        owner = await self._call(context, find_owner)
        await self._wait_until_at_rest(run, wait, owner)
        return await self._call(context, lambda caller: self._read_run(caller, run))

    async def withdraw(self, context: Context, run: RunNumber) -> RunResult:
        """Withdraw a request of your own before anything was sent."""

        def act(caller: AgentCaller) -> RunResult:
            self._check_own(caller, run)
            self._parts.service.withdraw_run(run, person=caller.id)
            return self._read_run(caller, run)

        return await self._call(context, act)

    async def changed_around(
        self,
        context: Context,
        hosts: Annotated[
            str, Field(min_length=1, max_length=200, description="Names, separated by commas.")
        ],
        at: Annotated[datetime | None, Field(description="ISO time; now if left out.")] = None,
        within: Annotated[str, Field(max_length=20, description="Such as 30m or 2 h.")] = "1 h",
    ) -> ChangeList:
        """List what changed on hosts around a time, most relevant first."""
        return await self._call(
            context, lambda caller: self._list_changes(caller, hosts, at, within)
        )

    async def _request_and_wait(
        self,
        context: Context,
        request: str,
        reason: str,
        wait: float,
        *,
        kind: str,
        ticket: str = "",
    ) -> RunResult:
        def act(caller: AgentCaller) -> tuple[Run, str]:
            return self._record(caller, request, reason, kind, ticket), caller.agent.owner

        run, owner = await self._call(context, act)
        await self._wait_until_at_rest(run.id, wait, owner)
        return await self._call(context, lambda caller: self._read_run(caller, run.id))

    def _record(
        self, caller: AgentCaller, request: str, reason: str, kind: str, ticket: str
    ) -> Run:
        """Record a check, or plan a change."""
        policy = self._parts.policies.get_policy()
        runbook, words = request_form.find_runbook(request_form.split_words(request))
        if get_kind(runbook) != kind:
            other = {"check": "plan", "change": "check"}[kind]
            raise ToolError(f"{runbook.words} is no {kind}: call {other} instead")
        pattern, requests = request_form.parse_request_for_hosts(
            runbook, words, policy.inventory.tags
        )
        if _PATTERN_CHARACTERS.search(pattern):
            raise ToolError("name each host: agents cannot use patterns and tags")
        return self._parts.service.request_on_hosts(
            requests,
            RequestTerms(
                caller.id, caller.origin, reason, ticket=ticket, plan_only=kind == "change"
            ),
            host_pattern=pattern,
        )

    def _read_run(self, caller: AgentCaller, number: int) -> RunResult:
        policy = self._parts.policies.get_policy()
        with self._parts.database.reading(caller.get_view_rights(policy)) as tx:
            view = build_run_view(tx, number, policy, with_log=False)
            if caller.is_for_another(view.run):
                raise NoSuchRun(f"there is no run {number}, or you may not view it")
            return RunResult.from_view(tx, view, policy, self._parts.base_url)

    def _check_own(self, caller: AgentCaller, number: int) -> None:
        """Raise NoSuchRun unless the agent requested the run for the same person."""
        with self._parts.database.reading() as tx:
            if not caller.is_own(runs.get_run(tx, number)):
                raise NoSuchRun(f"there is no run {number}, or you may not view it")

    def _list_changes(
        self, caller: AgentCaller, hosts: str, at: datetime | None, within: str
    ) -> ChangeList:
        if _PATTERN_CHARACTERS.search(hosts):
            raise ToolError("name each host: agents cannot use patterns and tags")
        policy = self._parts.policies.get_policy()
        with self._parts.database.reading(caller.get_view_rights(policy)) as tx:
            found = timeline.build_timeline(
                tx,
                tx.now if at is None else round(at.timestamp() * 1_000_000),
                span=times.parse_span(within),
                host_pattern=hosts.lower(),
                limit=_MAX_CHANGES,
            )
            events = [
                event
                for event in found.events
                if event.run is None or not caller.is_for_another(runs.get_run(tx, event.run))
            ]
            lines = [f"{event.what}: {event.outcome}" for event in events]
            return ChangeList(
                changes=[
                    ChangeResult(
                        at=times.format_iso(event.at),
                        hosts=event.hosts,
                        person=policy.get_person_name(event.person),
                        run=event.run,
                        state=event.state,
                    )
                    for event in events
                ],
                omitted=found.omitted,
                host_output=UntrustedText.from_lines(lines, tx.redactor) if lines else None,
            )

    async def _call(self, context: Context, act: Callable[[AgentCaller], T]) -> T:
        """Call a function in a thread with the agent of this request."""
        request = context.request_context.request
        user = request.user if request is not None else None
        if not isinstance(user, AuthenticatedUser):
            raise ToolError("there is no agent's token with this request")
        secret, client = user.access_token.token, _describe_client(context)

        def run_as_caller() -> T:
            with _explain_errors():
                caller = find_caller(self._parts, secret, client)
                if caller is None:
                    raise ToolError("the token is not valid any more")
                if seconds := self._parts.rate_limit.take(caller.token.id):
                    raise ToolError(f"too many calls: try again in {math.ceil(seconds)} s")
                return act(caller)

        return await asyncio.to_thread(run_as_caller)

    async def _wait_until_at_rest(self, run: int, seconds: float, owner: str) -> None:
        """Wait until a run ends or needs people, holding neither a thread nor a transaction.

        owner: of the agent, so that the agents of one person do not take all places.
        """
        is_excess = self._waiting[owner] >= MAX_WAITING_OF_OWNER
        if is_excess or self._waiting.total() >= _MAX_WAITING:
            return
        self._waiting[owner] += 1
        try:
            end = asyncio.get_running_loop().time() + seconds
            while not await asyncio.to_thread(self._is_at_rest, run):
                left = end - asyncio.get_running_loop().time()
                if left <= 0 or self._parts.service.is_closing:
                    return
                await asyncio.sleep(min(left, _POLL_SECONDS))
        finally:
            self._waiting[owner] -= 1

    def _is_at_rest(self, run: int) -> bool:
        with _explain_errors(), self._parts.database.reading() as tx:
            return is_at_rest(runs.get_run(tx, run).state)

    def list_tools(self) -> Sequence[tuple[Callable[..., object], ToolAnnotations]]:
        """Return the tools in a fixed order, with what they do to the world."""
        return (
            (self.find_runbooks, READS),
            (self.describe, READS),
            (self.check, READS),
            (self.plan, READS),
            (self.request, REQUESTS),
            (self.status, READS),
            (self.withdraw, WITHDRAWS),
            (self.changed_around, READS),
        )


def _describe_client(context: Context) -> str:
    """Return the name and version of the program, as it states them; unverified."""
    meta = cast("Mapping[str, Any]", context.request_context.meta or {})
    info: Mapping[str, Any] = meta.get(CLIENT_INFO_META_KEY) or {}
    request = context.request_context.request
    agent = request.headers.get("user-agent", "") if request is not None else ""
    stated = f"{info.get('name', '')} {info.get('version', '')}".strip() or agent
    return "".join(one for one in stated if one.isprintable())[:_MAX_CLIENT_LENGTH]


@contextmanager
def _explain_errors() -> Generator[None]:
    """Turn errors that the agent can resolve into errors of the tool."""
    try:
        yield
    except DomainError as error:
        # It may quote the reason of a person, or a ticket.
        raise ToolError(fence_text(observability.explain_error(error, "MCP"))) from None
