"""Drift as people see it: which values changed outside Keyturn, when, and who may answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.db import outbox, runs, search, view_conditions
from bot.db.database import Transaction
from bot.features.drift import rows
from bot.features.drift.rows import DriftKey
from bot.features.drift.state import Candidate
from bot.features.drift.watch import SLOT_PREFIX
from bot.model.drift_state import DRIFTED_STATES, DriftState
from bot.model.lasting_values import get_key_name
from bot.model.plan import RemainingWork
from bot.model.run import Run
from bot.model.text import format_count
from bot.model.times import DAY, format_utc
from bot.policy import Policy, PolicyRequest
from bot.queries.digest import DigestSection
from bot.queries.folded_runs import AdoptedValue, ValueFact
from bot.workflow.context import WorkflowContext

# The check whose output names who did what on a host.
CANDIDATE_CHECK = "host changes"
_MAX_RUNS = 20


@dataclass(frozen=True)
class AnswerRight:
    """Whether a person may adopt or expect another value."""

    refusal: str
    """Why not; "" if the person may."""
    needs_factor: bool = False
    """Whether it needs a second factor."""


@dataclass(frozen=True)
class DriftDetails:
    """One key with everything that a person may know of it."""

    key: DriftKey
    run: Run
    """The run that set the value."""
    candidates: Sequence[Candidate]
    """What happened on the host between the last good and the first bad reading, newest first."""
    are_candidates_hidden: bool
    """Whether the person may not view what `host changes` prints of the host."""
    entries: Sequence[Entry]
    """The log entries about it, oldest first."""
    answer_right: AnswerRight


def read_details(tx: Transaction, policy: Policy, number: int, *, person: str) -> DriftDetails:
    """Return a key with its candidates and log entries. Raises NoSuchKeyError."""
    key = rows.get_key(tx, number)
    run = runs.get_run(tx, key.run)
    rights = tx.view_rights
    is_hidden = rights is not None and not rights.can_view(
        host=key.host, runbook=CANDIDATE_CHECK, kind="check"
    )
    found = [*(() if is_hidden else key.candidates), *_list_own_runs(tx, key)]
    entries = [
        entry
        for entry in change_log.list_entries_of_run(tx, key.run)
        if isinstance(event := entry.event, events.DriftChanged) and event.key == key.name
    ]
    return DriftDetails(
        key,
        run,
        sorted(found, key=lambda one: one.at, reverse=True),
        is_hidden and key.state in DRIFTED_STATES,
        entries,
        get_answer_right(policy, run, person=person, now=tx.now),
    )


def _list_own_runs(tx: Transaction, key: DriftKey) -> list[Candidate]:
    """Return the changes by Keyturn on the host in the window: a failed one may be the cause."""
    if key.state not in DRIFTED_STATES:
        return []
    window = search.RunFilter(host=key.host, since=key.good_at - DAY, until=key.since_at)
    found = search.find_newest_runs(tx, window, most=_MAX_RUNS)
    return [
        Candidate(
            run.started_at, "keyturn", run.requested_by, f"run {run.id}, {run.state}: {run.title}"
        )
        for run in found
        if run.kind == "change"
        and run.started_at is not None
        and key.good_at <= run.started_at <= key.since_at
        and run.id != key.run
    ]


def get_answer_right(policy: Policy, run: Run, *, person: str, now: int) -> AnswerRight:
    """Return whether a person may adopt or expect another value than a run has set.

    These are the people who may approve such a change on the host.
    """
    if run.host not in policy.inventory.hosts:
        return AnswerRight(f"{run.host} is not in the inventory any more")
    request = PolicyRequest(
        runbook=run.runbook,
        kind=run.kind,
        host=run.host,
        source="web",
        requested_by=run.requested_by,
        reversible=run.plan is None or run.plan.is_reversible,
        now=now,
    )
    required = policy.get_request_ruling(request)
    if not required.allowed:
        # The requester may not request it any more, so what the run needed counts.
        required = replace(required, requirements=run.requirements)
    # The person who once requested the value is no party to what has changed since.
    ruling = policy.get_approval_ruling(person, replace(request, requested_by=""), required)
    if ruling.allowed:
        return AnswerRight("", required.requires_second_factor)
    return AnswerRight(
        f"only people who can approve {run.runbook} on {run.host} can adopt the value or let it "
        f"vary: {ruling.refusal_reason}"
    )


def describe_window(key: DriftKey) -> str:
    """Return when the value changed: `between … and …`."""
    return f"between {format_utc(key.good_at)} and {format_utc(key.since_at)}"


def describe_drift(key: DriftKey) -> str:
    """Return a sentence about a key that is not as set."""
    if key.state is DriftState.CHANGED:
        was = f", set to {key.set_value}" if key.set_value else ""
        return f"{key.name} changed outside Keyturn {describe_window(key)}: {key.value}{was}"
    if key.state is DriftState.MISSING:
        return f"{key.name} is missing since {format_utc(key.since_at)}: {key.value}"
    if key.state is DriftState.UNREADABLE:
        return f"{key.name} cannot be read since {format_utc(key.since_at)}: {key.value}"
    return f"{key.name} is as set"


def list_announced_keys(tx: Transaction, run: Run) -> list[DriftKey]:
    """Return the keys that the newest message to chat about a run lists, those that drift first.

    Without the message, only if one of the run's drifts. With it, also when all are as set.
    """
    if run.kind != "change" or not run.is_ended:
        return []
    own = [key for key in rows.list_keys_of_run(tx, run.id) if key.state in DRIFTED_STATES]
    times = [key.announced_at for key in own if key.announced_at is not None]
    slots = (one for one in outbox.list_messages(tx, run.id) if one.startswith(SLOT_PREFIX))
    times += [int(slot.removeprefix(SLOT_PREFIX)) for slot in slots]
    newest = max(times, default=None)
    found = rows.list_keys(tx, host=run.host) if newest is not None else []
    return [key for key in found if key.announced_at == newest]


def list_plan_notes(
    context: WorkflowContext, tx: Transaction, policy: Policy, run: Run, _work: RemainingWork
) -> Sequence[str]:
    """Return what an approver should know of a value that changed outside Keyturn.

    The plan names no run that its requester may not view, nor what it has set.
    """
    key_name = get_key_name(context.runbooks, run)
    key = rows.find_key(tx, run.host, key_name) if key_name else None
    if key is None or key.state not in DRIFTED_STATES:
        return ()
    rights = policy.get_requester_view_rights(run.requested_by, run.origin.agent)
    with view_conditions.viewing_as(tx, rights):
        is_viewable = bool(view_conditions.list_viewable(tx, [key.run]))
    if not is_viewable:
        return (f"{describe_drift(replace(key, set_value=''))}.",)
    return (f"{describe_drift(key)} (run {key.run}).",)


def read_value_facts(tx: Transaction, host: str) -> Mapping[str, ValueFact]:
    """Return which values of a host a person adopted, and which are not as set."""
    return {
        key.name: ValueFact(
            _find_adoption(tx, key) if key.adopted else None,
            _describe_doubt(key) if key.state is not DriftState.AS_SET else "",
        )
        for key in rows.list_keys(tx, host=host)
    }


def _find_adoption(tx: Transaction, key: DriftKey) -> AdoptedValue:
    adopted = [
        (entry, event)
        for entry in change_log.list_entries_of_run(tx, key.run, [events.DriftAdopted.kind])
        if isinstance(event := entry.event, events.DriftAdopted) and event.key == key.name
    ]
    entry, event = adopted[-1] if adopted else (None, None)
    return AdoptedValue(
        key.name,
        key.set_value,
        entry.person if entry else "",
        event.reason if event else "",
        entry.at if entry else key.since_at,
        key.run,
    )


def _describe_doubt(key: DriftKey) -> str:
    on_host = f": {key.value}" if key.value else ""
    return f"Why {key.name} is {key.state.label} since {format_utc(key.since_at)}{on_host}"


def build_digest(tx: Transaction, policy: Policy, owned: set[str]) -> Sequence[DigestSection]:
    """Count the values that changed on the hosts of some areas."""
    hosts: dict[str, int] = {}
    for key in rows.list_keys(tx, state=DriftState.CHANGED):
        known = policy.inventory.hosts.get(key.host)
        if known is not None and known.area in owned:
            hosts[key.host] = hosts.get(key.host, 0) + 1
    lines = [f"{host}: {format_count(number, 'value')}" for host, number in hosts.items()]
    return [DigestSection("Changed outside Keyturn", lines, command="drift")]
