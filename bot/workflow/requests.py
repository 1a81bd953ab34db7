"""Create requests: each is validated and recorded before anything is done about it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypedDict

from bot import observability
from bot.audit import change_log, events
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model import host_patterns
from bot.model.agents import is_agent
from bot.model.errors import (
    InvalidRequestError,
    NotAllowed,
    TicketRequiredError,
    TooManyRequestsError,
)
from bot.model.plain_text import check_line, join_to_one_line
from bot.model.request_form import (
    format_request,
    get_field_texts,
    get_required_tag,
    list_request_words,
)
from bot.model.run import (
    MAX_AREAS_LENGTH,
    RefusedBy,
    RequestOrigin,
    RequestTerms,
    Run,
    State,
    join_areas,
)
from bot.model.schedule import ScheduleTiming
from bot.model.tickets import parse_ticket_key
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.trees import parse_cut_set
from bot.queries.approval_count import get_ruling
from bot.workflow import agent_limits, rate_limit
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_if_stopped, end_run
from connectors.errors import UnknownHostError
from connectors.visible_text import InvisibleCharacterError, refuse_invisible
from runbooks import AnyRunbook
from runbooks._catalogue import get_kind

SENSITIVE_REQUEST_MESSAGE = (
    "your text contains a password or a key: change that secret now, then send the text without it"
)
NEEDS_TICKET = "the policy requires an approved change ticket"
_TICKET_HINT = "name it in the form, with ticket=CHG0030001 in chat, or with --ticket"
_MAX_REASON_LENGTH = 1000
_MAX_HOST_PATTERN_LENGTH = 100
# For so many areas the message suggests what to type.
_MAX_LISTED_AREAS = 8


def create_request(context: WorkflowContext, runbook: AnyRunbook, terms: RequestTerms) -> Run:
    """Record the request and have it planned, or record that it was refused."""
    policy = context.policies.get_policy()
    override = terms.guard_override
    if override:
        override = _check_override(policy, override, terms.reason)
    check_host(policy, runbook)
    return record_new_request(
        context,
        policy,
        runs.NewRun(
            runbook=runbook.words,
            kind=get_kind(type(runbook)),
            values=get_field_texts(runbook),
            request=format_request(runbook),
            host=runbook.target,
            area=policy.get_area(runbook.target).name,
            guard_override=override,
            **get_terms_of_run(terms),
        ),
    )


class TermsOfRun(TypedDict):
    requested_by: str
    origin: RequestOrigin
    reason: str
    timing: ScheduleTiming | None
    ticket: str
    plan_only: bool
    replan_of: int | None
    editors: Sequence[str]


def get_terms_of_run(terms: RequestTerms) -> TermsOfRun:
    """Return these terms as fields of a new run. Raises InvalidRequestError."""
    return {
        "requested_by": terms.person,
        "origin": terms.origin,
        "reason": check_reason(terms.reason),
        "timing": terms.timing,
        "ticket": parse_ticket_key(terms.ticket),
        "plan_only": terms.plan_only,
        "replan_of": terms.replaced_run.id if terms.replaced_run else None,
        "editors": terms.replaced_run.editors if terms.replaced_run else (),
    }


def _check_override(policy: Policy, text: str, reason: str) -> str:
    """Return the cut set as it is stored. Raises InvalidRequestError."""
    if not reason:
        raise InvalidRequestError("an override of the redundancy guard needs a reason")
    try:
        return parse_cut_set(policy.trees, text)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None


def create_fanout_request(
    context: WorkflowContext,
    runbooks: Sequence[AnyRunbook],
    terms: RequestTerms,
    *,
    host_pattern: str,
) -> Run:
    """Record one request for several hosts. host_pattern: as it was typed, such as lb*.

    Only checks may cover hosts of several areas, because they need no owner's approval.
    """
    if terms.guard_override:
        raise InvalidRequestError("override the redundancy guard for one host at a time")
    policy = context.policies.get_policy()
    _check_host_pattern(host_pattern)
    for runbook in runbooks:
        check_host(policy, runbook)
    first = runbooks[0]
    areas = {runbook.target: policy.get_area(runbook.target).name for runbook in runbooks}
    area = join_areas(areas.values())
    # Checked first, because the messages of the next check quote the request.
    _check_secrets(context, format_request(first, host=host_pattern))
    _check_areas(policy, first, areas, host_pattern, terms.timing)
    parent = runs.NewRun(
        runbook=first.words,
        kind=get_kind(type(first)),
        values=get_field_texts(first) | {"host": host_pattern},
        request=format_request(first, host=host_pattern),
        host=first.target,
        area=area,
        hosts=tuple(runbook.target for runbook in runbooks),
        **get_terms_of_run(terms),
    )
    children = [
        replace(
            parent,
            values=get_field_texts(runbook),
            request=format_request(runbook),
            host=runbook.target,
            area=areas[runbook.target],
            hosts=(),
            replan_of=None,
        )
        for runbook in runbooks
    ]
    return record_new_request(context, policy, parent, children)


def request_undo(context: WorkflowContext, number: int, terms: RequestTerms) -> Run:
    """Request the undo of a run: a new run, planned and approved like any other."""
    policy = context.policies.get_policy()
    with context.database.reading() as tx:
        original = runs.get_run(tx, number)
        done = [
            run
            for run in runs.list_children(tx, number) or [original]
            if runs.has_executed_steps(tx, run.id)
        ]
    if original.kind != "change" or not done:
        raise InvalidRequestError(f"run {number} changed nothing, so there is nothing to undo")
    if original.undo_of is not None:
        raise InvalidRequestError(
            f"run {number} is an undo: request {original.runbook} again instead"
        )
    missing = [run.host for run in done if run.host not in policy.inventory.hosts]
    if missing:
        raise InvalidRequestError(f"no longer in the inventory: {', '.join(missing)}")
    new = runs.NewRun(
        runbook=original.runbook,
        kind=original.kind,
        values=original.values,
        request=original.request,
        host=done[0].host,
        area=policy.get_area(done[0].host).name,
        undo_of=number,
        hosts=tuple(run.host for run in done) if original.hosts else (),
        **get_terms_of_run(terms),
    )
    children = [
        replace(
            new,
            values=run.values,
            request=run.request,
            host=run.host,
            hosts=(),
            undo_of=run.id,
            replan_of=None,
        )
        for run in done
    ]
    return record_new_request(context, policy, new, children if original.hosts else ())


def record_new_request(
    context: WorkflowContext,
    policy: Policy,
    new_run: runs.NewRun,
    children: Sequence[runs.NewRun] = (),
) -> Run:
    """Record a request unless its requester has made too many. Raises TooManyRequestsError."""
    with context.database.transaction() as tx:
        if same := agent_limits.find_identical_request(tx, new_run):
            return same
        refusal = is_agent(new_run.requested_by) and agent_limits.get_agent_refusal(tx, new_run)
        wait = rate_limit.get_rate_limit_refusal(tx, context.rate_limits, new_run)
        if not refusal and not wait:
            return record_request(context, tx, policy, new_run, children)
    raise NotAllowed(refusal) if refusal else TooManyRequestsError(wait)


def record_request(
    context: WorkflowContext,
    tx: Transaction,
    policy: Policy,
    new_run: runs.NewRun,
    children: Sequence[runs.NewRun] = (),
) -> Run:
    """Record a request and have it planned, or end it as stopped or refused."""
    _check_secrets(context, new_run.request)
    if new_run.timing is not None:
        _check_timing(context, new_run.runbook, new_run.timing, tx.now)
    _check_ticket(policy, new_run)
    if new_run.plan_only and new_run.kind == "check" and new_run.timing is None:
        raise InvalidRequestError(
            f"{new_run.runbook} only reads, so it has no plan: request it instead"
        )
    run = runs.add_run(tx, new_run)
    request, ruling = get_ruling(tx, policy, run)
    log_request(tx, events.PlanRequested if run.plan_only else events.Requested, run)
    if stopped := end_if_stopped(context, tx, run, policy):
        return stopped
    if not ruling.allowed:
        why = describe_policy_refusal(policy, request, ruling)
        return end_run(context, tx, run, State.REFUSED, why, refused_by=RefusedBy.POLICY)
    if not run.plan_only:
        check_has_reason(run, ruling)
        check_has_ticket(run, ruling)
        outbox.announce_run(tx, run.id)
    planned = [(run.id, run.host)]
    if children:
        numbers = runs.add_runs(
            tx, [replace(child, parent=run.id, plan_only=run.plan_only) for child in children]
        )
        planned = [*zip(numbers, (child.host for child in children), strict=True)]
    # Runs at one site are planned together: one job wakes all of them.
    firsts = {policy.inventory[host].site: number for number, host in reversed(planned)}
    enqueue = (
        context.dispatcher.enqueue_check
        if _changes_nothing(run)
        else context.dispatcher.enqueue_run
    )
    for site, number in firsts.items():
        enqueue(tx, number, site)
    return run


def describe_policy_refusal(policy: Policy, request: PolicyRequest, ruling: Ruling) -> str:
    """Return the summary of a run that the policy refuses."""
    unknown_duty = policy.describe_unknown_duty(request, ruling)
    return f"The policy refuses: {'; '.join(filter(None, [ruling.refusal_reason, unknown_duty]))}"


def refuse_child_run(run: Run, verb: str) -> None:
    """Raise InvalidRequestError for a child run. verb: what to do to its parent run instead."""
    if run.parent is not None:
        raise InvalidRequestError(
            f"run {run.id} belongs to run {run.parent}: {verb} that run instead"
        )


def check_has_reason(run: Run, ruling: Ruling) -> None:
    """Raise InvalidRequestError if the policy requires a reason and there is none."""
    if ruling.requires_reason and not run.reason:
        raise InvalidRequestError(
            "the policy requires a reason: add because REASON, or fill in the reason"
        )


def check_has_ticket(run: Run, ruling: Ruling) -> None:
    """Raise TicketRequiredError if the policy requires a change ticket and there is none.

    A schedule cannot name a ticket: InvalidRequestError.
    """
    if ruling.requires_ticket and run.timing is not None:
        raise InvalidRequestError(
            f"{NEEDS_TICKET}, and a schedule cannot name one: request the change itself, or have "
            'a rule without @ticket for context.source == "schedule"'
        )
    if ruling.requires_ticket and not run.ticket:
        raise TicketRequiredError(f"{NEEDS_TICKET}: {_TICKET_HINT}")


def _check_ticket(policy: Policy, new_run: runs.NewRun) -> None:
    """Raise InvalidRequestError for a ticket that cannot be asked about."""
    if not new_run.ticket:
        return
    if new_run.kind == "check" or new_run.timing is not None:
        raise InvalidRequestError("only a change that runs now can name a ticket: remove it")
    if policy.tickets is None:
        raise InvalidRequestError(
            "no ticket system is configured (tickets.yaml): remove the ticket"
        )
    if not policy.tickets.matches_key(new_run.ticket):
        raise InvalidRequestError(
            f"{new_run.ticket} is no ticket: it must be {policy.tickets.key}"
        )


def log_request(
    tx: Transaction, event_type: type[events.Requested | events.PlanRequested], run: Run
) -> None:
    """Log a request, with everything that the gate compares the run with later."""
    agent = run.origin.agent
    requested = event_type(
        runbook=run.runbook,
        values=run.values,
        request=run.request,
        source=run.origin.source,
        reason=run.reason,
        undo_of=run.undo_of,
        hosts=tuple(run.hosts),
        timing=run.timing.document if run.timing else None,
        guard_override=run.guard_override,
        ticket=run.ticket,
        schedule=run.origin.schedule_id or None,
        replan_of=run.replan_of,
        editors=tuple(run.editors),
    )
    if agent is not None:
        # The log holds no prompts.
        requested = replace(
            requested,
            behalf=agent.behalf,
            agent_owner=agent.owner,
            client=agent.client,
            token=run.origin.user,
            trace_id=str(observability.current_context().get("trace_id", "")),
        )
    change_log.append_entry(tx, requested, run=run, person=run.requested_by)


def list_sibling_runs_at_site(tx: Transaction, policy: Policy, run: Run) -> list[Run]:
    """Return the other child runs at the same site that are still to be planned."""
    hosts = policy.inventory.hosts
    site = hosts[run.host].site if run.host in hosts else ""
    siblings = runs.list_children_in(tx, run.parent or 0, [State.PLANNING])
    return [
        one
        for one in siblings
        if one.id != run.id and (one.host not in hosts or hosts[one.host].site == site)
    ]


def is_read_only(run: Run) -> bool:
    """Return whether a run only reads one host."""
    return _changes_nothing(run) and not run.hosts


def _changes_nothing(run: Run) -> bool:
    """Return whether a run and its child runs change nothing."""
    return run.kind == "check" and run.timing is None


def check_host(policy: Policy, runbook: AnyRunbook) -> None:
    """Raise InvalidRequestError unless the inventory has the host, with the tag that it needs."""
    try:
        host = policy.inventory[runbook.target]
    except UnknownHostError as error:
        raise InvalidRequestError(str(error)) from None
    tag = get_required_tag(type(runbook))
    if tag is not None and tag not in host.tags:
        supported = ", ".join(sorted(other.name for other in policy.inventory.list_tagged(tag)))
        raise InvalidRequestError(
            f"{host.name} is not tagged {tag}; "
            + (
                f"{runbook.words} works on {supported}"
                if supported
                else f"no host is tagged {tag} yet"
            )
        )


def _check_secrets(context: WorkflowContext, request: str) -> None:
    if context.database.redactor.has_secret(request):
        raise InvalidRequestError(SENSITIVE_REQUEST_MESSAGE)


def _check_areas(
    policy: Policy,
    runbook: AnyRunbook,
    area_by_host: Mapping[str, str],
    host_pattern: str,
    timing: ScheduleTiming | None,
) -> None:
    """Raise InvalidRequestError if the hosts are in too many areas."""
    areas = set(area_by_host.values())
    is_check = get_kind(type(runbook)) == "check" and timing is None
    if len(areas) > 1 and not is_check:
        raise InvalidRequestError(
            f"{host_pattern} is in several areas with different owners: request each area "
            "separately. " + "; ".join(_suggest_request_per_area(policy, runbook, area_by_host))
        )
    if len(join_areas(areas)) > MAX_AREAS_LENGTH:
        raise InvalidRequestError(
            f"{host_pattern} is in {len(areas)} areas: request fewer hosts at a time"
        )


def _suggest_request_per_area(
    policy: Policy, runbook: AnyRunbook, area_by_host: Mapping[str, str]
) -> Iterator[str]:
    """Yield what to type for the hosts of each area."""
    known = [host.name for host in policy.inventory.list_tagged(get_required_tag(type(runbook)))]
    hosts: dict[str, list[str]] = {}
    for host, area in area_by_host.items():
        hosts.setdefault(area, []).append(host)
    for area in sorted(hosts)[:_MAX_LISTED_AREAS]:
        for word in host_patterns.shorten_host_names(
            hosts[area], known, max_length=_MAX_HOST_PATTERN_LENGTH
        ):
            yield f"{area}: {shlex.join(list_request_words(runbook, host=word))}"
    rest = sorted(hosts)[_MAX_LISTED_AREAS:]
    if rest:
        yield f"and so on for {', '.join(rest)}"


def _check_timing(
    context: WorkflowContext, runbook: str, timing: ScheduleTiming, now: int
) -> None:
    # An unknown runbook is refused when the run is planned.
    known = context.runbooks.get(runbook)
    minutes = known.minutes if known else 0
    if timing.cron_expression.compute_shortest_gap(now) < timedelta(minutes=minutes):
        raise InvalidRequestError(
            f"{runbook} may run every {minutes} minutes at most: "
            f"“{timing.cron_expression.cron}” is more frequent"
        )


def _check_host_pattern(host_pattern: str) -> None:
    try:
        refuse_invisible(host_pattern)
    except InvisibleCharacterError as error:
        raise InvalidRequestError(f"your host pattern {error}") from None
    if len(host_pattern) > _MAX_HOST_PATTERN_LENGTH:
        raise InvalidRequestError(
            f"the host pattern is longer than {_MAX_HOST_PATTERN_LENGTH} characters: shorten it, "
            "for example to lb*, @tag or lb1,lb2"
        )


def shorten_reason(text: str) -> str:
    """Return a reason on one line, cut to its maximum length.

    Raises:
        InvalidRequestError: It contains an invisible character.
    """
    try:
        return join_to_one_line(text)[:_MAX_REASON_LENGTH]
    except InvisibleCharacterError as error:
        raise InvalidRequestError(f"the reason {error}") from None


def check_reason(text: str) -> str:
    """Return a reason on one line. Raises InvalidRequestError."""
    return check_line(text, name="the reason", max_length=_MAX_REASON_LENGTH)
