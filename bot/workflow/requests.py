"""Asking: a request is recorded before anything is done about it."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

from bot.audit import change_log
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model import host_patterns
from bot.model.plain_text import fold_text
from bot.model.run import LONGEST_AREAS, Origin, Run, State, StepState, join_areas
from bot.model.schedule import ScheduleTiming
from bot.policy import Policy
from bot.workflow import rate_limit, stop_reasons
from bot.workflow.approval_count import get_ruling
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from connectors.command import InvisibleCharacterError, refuse_invisible
from connectors.errors import UnknownHostError
from runbooks import AnyRunbook
from runbooks._catalogue import get_kind

LEAVE_IT_OUT = "what you typed holds a password or a key: change it now, and leave it out"
_LONGEST_REASON = 1000
_LONGEST_SPELLING = 100
# So many areas are told what to type for.
_MOST_SPELLED = 8


class InvalidRequest(Exception):
    """The request makes no sense as it stands. The message says what to type instead."""


class NoSuchPerson(InvalidRequest):
    """Somebody was named who is not among the people of the policy."""

    def __init__(self, person: str, known: Iterable[str] = ()) -> None:
        there = ", ".join(sorted(known))
        said = f"{person} is not among the people of the policy"
        super().__init__(f"{said}: {there}" if there else said)


class TooManyRequests(InvalidRequest):
    """So much was asked for just now that this has to wait. The message says what."""


def create_request(
    parts: WorkflowContext,
    runbook: AnyRunbook,
    *,
    person: str,
    origin: Origin,
    reason: str = "",
    timing: ScheduleTiming | None = None,
) -> Run:
    """Record the request and have it planned, or record that it was refused.

    timing: ask for a schedule instead of for a run now.
    """
    policy = parts.policies.current()
    _check_host(policy, runbook)
    return _record(
        parts,
        policy,
        runs.NewRun(
            words=runbook.words,
            kind=get_kind(type(runbook)),
            fields=field_texts(runbook),
            request=format_typed(runbook),
            host=runbook.target,
            area=policy.area_of(runbook.target).name,
            asked_by=person,
            origin=origin,
            reason=_reason(reason),
            timing=timing,
        ),
    )


def create_fanout_request(
    parts: WorkflowContext,
    runbooks: Sequence[AnyRunbook],
    *,
    spelled: str,
    person: str,
    origin: Origin,
    reason: str = "",
    timing: ScheduleTiming | None = None,
) -> Run:
    """Record one request for several hosts. spelled: the hosts as they were typed, such as lb*.

    Only a check may be for hosts of several areas: it takes no owner's approval.
    """
    policy = parts.policies.current()
    _check_spelling(spelled)
    for runbook in runbooks:
        _check_host(policy, runbook)
    first = runbooks[0]
    areas = {runbook.target: policy.area_of(runbook.target).name for runbook in runbooks}
    several = join_areas(areas.values())
    # What was typed is said again there.
    _check_secrets(parts, format_typed(first, host=spelled))
    _check_areas(policy, first, areas, spelled, timing)
    whole = runs.NewRun(
        words=first.words,
        kind=get_kind(type(first)),
        fields=field_texts(first) | {"host": spelled},
        request=format_typed(first, host=spelled),
        host=first.target,
        area=several,
        asked_by=person,
        origin=origin,
        reason=_reason(reason),
        hosts=tuple(runbook.target for runbook in runbooks),
        timing=timing,
    )
    children = [
        replace(
            whole,
            fields=field_texts(runbook),
            request=format_typed(runbook),
            host=runbook.target,
            area=areas[runbook.target],
            hosts=(),
        )
        for runbook in runbooks
    ]
    return _record(parts, policy, whole, children)


def request_undo(
    parts: WorkflowContext, number: int, *, person: str, origin: Origin, reason: str = ""
) -> Run:
    """Ask to take a run back: a new run, planned and approved like any other."""
    policy = parts.policies.current()
    with parts.database.reading() as tx:
        original = runs.get_run(tx, number)
        done = [run for run in runs.list_children(tx, number) or [original] if _did(tx, run)]
    if original.kind != "change" or not done:
        raise InvalidRequest(f"run {number} changed nothing, so there is nothing to undo")
    if original.undo_of is not None:
        raise InvalidRequest(
            f"run {number} is itself an undo: ask for {original.words} again instead"
        )
    gone = [run.host for run in done if run.host not in policy.inventory.hosts]
    if gone:
        raise InvalidRequest(f"no longer in the inventory: {', '.join(gone)}")
    new = runs.NewRun(
        words=original.words,
        kind=original.kind,
        fields=original.fields,
        request=original.request,
        host=done[0].host,
        area=policy.area_of(done[0].host).name,
        asked_by=person,
        origin=origin,
        reason=_reason(reason),
        undo_of=number,
        hosts=tuple(run.host for run in done) if original.hosts else (),
    )
    children = [
        replace(
            new,
            fields=run.fields,
            request=run.request,
            host=run.host,
            hosts=(),
            undo_of=run.id,
        )
        for run in done
    ]
    return _record(parts, policy, new, children if original.hosts else ())


def _did(tx: Transaction, run: Run) -> bool:
    return any(step.state is not StepState.FAILED for step in runs.list_steps(tx, run.id))


def _record(
    parts: WorkflowContext, policy: Policy, new: runs.NewRun, children: Sequence[runs.NewRun] = ()
) -> Run:
    with parts.database.transaction() as tx:
        wait = rate_limit.why_too_many(tx, parts.pace, new)
        if not wait:
            return record_request(parts, tx, policy, new, children)
    raise TooManyRequests(wait)


def record_request(
    parts: WorkflowContext,
    tx: Transaction,
    policy: Policy,
    new: runs.NewRun,
    children: Sequence[runs.NewRun] = (),
) -> Run:
    """Record a request and see to it that it is planned, or that it ends refused."""
    _check_secrets(parts, new.request)
    if new.timing is not None:
        _check_timing(parts, new.words, new.timing, tx.now)
    run = runs.add_run(tx, new)
    ruling = get_ruling(tx, policy, run)[1]
    change_log.append_entry(
        tx,
        "asked",
        run=run.id,
        person=run.asked_by,
        host=run.host,
        runbook=run.words,
        fields=run.fields,
        request=run.request,
        door=run.origin.door,
        reason=run.reason,
        undo_of=run.undo_of,
        hosts=run.hosts,
        timing=run.timing.document if run.timing else None,
        schedule=run.origin.schedule or None,
    )
    stop = stop_reasons.describe_stop(tx, run, policy)
    if stop:
        return end_run(
            parts, tx, run, State.STOPPED, stop_reasons.describe_stopped_run(tx, run, stop)
        )
    if not ruling.allowed:
        why = "; ".join(ruling.says) or "no rule of the policy allows it"
        return end_run(parts, tx, run, State.REFUSED, f"The policy refuses: {why}")
    if ruling.reason and not run.reason:
        raise InvalidRequest(
            "the rules want to know why this is done: add because REASON, or fill in the reason"
        )
    outbox.announce_run(tx, run.id)
    planned = [(run.id, run.host)]
    if children:
        numbers = runs.add_runs(tx, [replace(child, parent=run.id) for child in children])
        planned = [*zip(numbers, (child.host for child in children), strict=True)]
    # Those at one site are read together: one hint does for all of them.
    firsts = {policy.inventory[host].site: number for number, host in reversed(planned)}
    lane = parts.dispatch.look if _reads(run) else parts.dispatch.enqueue
    for site, number in firsts.items():
        lane(tx, number, site)
    return run


def list_other_parts(tx: Transaction, policy: Policy, run: Run) -> list[Run]:
    """Return the other parts of a request that are still to be read at the site of this one."""
    hosts = policy.inventory.hosts
    site = hosts[run.host].site if run.host in hosts else ""
    asked = runs.list_children_in(tx, run.parent or 0, [State.ASKED])
    return [
        one
        for one in asked
        if one.id != run.id and (one.host not in hosts or hosts[one.host].site == site)
    ]


def is_read_only(run: Run) -> bool:
    """Say whether all that is to be done for a run is to read its host."""
    return _reads(run) and not run.hosts


def _reads(run: Run) -> bool:
    """Say whether a run, or each of its parts, changes nothing."""
    return run.kind == "check" and run.timing is None


def _check_host(policy: Policy, runbook: AnyRunbook) -> None:
    try:
        host = policy.inventory[runbook.target]
    except UnknownHostError as unknown:
        raise InvalidRequest(str(unknown)) from None
    tag = get_required_tag(type(runbook))
    if tag is not None and tag not in host.tags:
        fit = ", ".join(sorted(other.name for other in policy.inventory.list_tagged(tag)))
        raise InvalidRequest(
            f"{host.name} is not tagged {tag}; "
            + (f"{runbook.words} works on {fit}" if fit else f"no host is tagged {tag} yet")
        )


def _check_secrets(parts: WorkflowContext, request: str) -> None:
    if parts.database.redactor.holds(request):
        raise InvalidRequest(LEAVE_IT_OUT)


def _check_areas(
    policy: Policy,
    runbook: AnyRunbook,
    areas: Mapping[str, str],
    spelled: str,
    timing: ScheduleTiming | None,
) -> None:
    """areas: of each host that is meant, by its name."""
    several = set(areas.values())
    looks = get_kind(type(runbook)) == "check" and timing is None
    if len(several) > 1 and not looks:
        raise InvalidRequest(
            f"{spelled} is in several areas, and each has its own owners: ask for each by itself. "
            + "; ".join(_area_by_area(policy, runbook, areas))
        )
    if len(join_areas(several)) > LONGEST_AREAS:
        raise InvalidRequest(f"{spelled} is in {len(several)} areas: ask for fewer at a time")


def _area_by_area(policy: Policy, runbook: AnyRunbook, areas: Mapping[str, str]) -> Iterator[str]:
    """Yield what to type for the hosts of each area, as all doors understand it."""
    known = [host.name for host in policy.inventory.list_tagged(get_required_tag(type(runbook)))]
    hosts: dict[str, list[str]] = {}
    for host, area in areas.items():
        hosts.setdefault(area, []).append(host)
    for area in sorted(hosts)[:_MOST_SPELLED]:
        for word in host_patterns.shorten_host_names(
            hosts[area], known, longest=_LONGEST_SPELLING
        ):
            yield f"{area}: {shlex.join(_words(runbook, host=word))}"
    rest = sorted(hosts)[_MOST_SPELLED:]
    if rest:
        yield f"and so on for {', '.join(rest)}"


def _check_timing(parts: WorkflowContext, words: str, timing: ScheduleTiming, now: int) -> None:
    # One that is not known any more is refused when it is planned.
    known = parts.runbooks.get(words)
    minutes = known.minutes if known else 0
    if timing.timetable.shortest_gap(now) < timedelta(minutes=minutes):
        raise InvalidRequest(
            f"{words} may fire every {minutes} minutes at most, and "
            f"“{timing.timetable.cron}” is closer than that"
        )


def get_required_tag(runbook: type[AnyRunbook]) -> str | None:
    """Return the tag that a runbook's host must carry; None if any host will do."""
    extra: object = runbook.model_fields["host"].json_schema_extra
    tag = cast("dict[str, object]", extra).get("tag") if isinstance(extra, dict) else None
    return tag if isinstance(tag, str) else None


def field_texts(runbook: AnyRunbook) -> dict[str, str]:
    """Return the fields as text, in which form they are stored, shown and typed."""
    values = runbook.model_dump(mode="json", exclude_none=True)
    return {name: _text(value) for name, value in values.items()}


def format_typed(runbook: AnyRunbook, **instead: str) -> str:
    """Return the request as one would type it: what was left at its default is left out."""
    return " ".join(_words(runbook, **instead))


def _words(runbook: AnyRunbook, **instead: str) -> list[str]:
    words = runbook.words.split()
    for name, value in (field_texts(runbook) | instead).items():
        field = type(runbook).model_fields[name]
        if field.is_required():
            words.append(value)
        elif getattr(runbook, name) != field.default:
            words.append(f"{name}={value}")
    return words


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_spelling(hosts: str) -> None:
    try:
        refuse_invisible(hosts)
    except InvisibleCharacterError as unclean:
        raise InvalidRequest(f"what you typed for the hosts {unclean}") from None
    if len(hosts) > _LONGEST_SPELLING:
        raise InvalidRequest(
            f"say the hosts in {_LONGEST_SPELLING} characters, such as lb*, @tag or lb1,lb2"
        )


def fold_reason(text: str) -> str:
    """Return a reason on one line, cut at its longest.

    Raises:
        Unfit: it holds a character that people cannot see.
    """
    try:
        return fold_text(text)[:_LONGEST_REASON]
    except InvisibleCharacterError as unclean:
        raise InvalidRequest(f"the reason {unclean}") from None


def _reason(text: str) -> str:
    try:
        folded = fold_text(text)
    except InvisibleCharacterError as unclean:
        raise InvalidRequest(f"the reason {unclean}") from None
    if len(folded) > _LONGEST_REASON:
        raise InvalidRequest(
            f"the reason has {len(folded)} characters: say it in {_LONGEST_REASON}"
        )
    return folded
