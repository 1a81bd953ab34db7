"""What an answer says: the results of its checks, and what changed on its hosts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.db import runs, view_conditions
from bot.db.database import Transaction
from bot.features.alerts.rows import Answer
from bot.model.agents import is_agent
from bot.model.references import hide_references
from bot.model.run import Run
from bot.model.run_states import RUN_STATUS_DISPLAYS
from bot.model.times import HOUR
from bot.model.view_rights import ViewRights
from bot.policy import Policy
from bot.queries import timeline
from bot.queries.timeline import TimelineEvent
from runbooks import load_catalogue
from runbooks._catalogue import get_kind

WINDOW_HOURS = 6
_MAX_READ, _MAX_EVENTS = 1000, 5
# What concerns every host, and may be nothing for the readers of a channel.
_GLOBAL_RANK = 3
# Runs that sent nothing.
_ATTEMPTED_RANK = 1


@dataclass(frozen=True)
class Change:
    """Something that changed a host, or may have."""

    at: int
    """Microseconds since 1970, UTC."""
    text: str


@dataclass(frozen=True)
class Findings:
    """What was found. A run that the requester may not view is left out."""

    checks: Sequence[Run]
    changes: Sequence[Change]
    """The newest first."""
    omitted: int
    """How many changes are left out."""
    shows_all: bool
    """Whether the requester may view every change on these hosts."""
    hides_shared: bool
    """Whether changes are left out that hosts of other channels have part in."""
    searched_span: int
    """How far back the log was searched, in microseconds: less than asked if it is long."""


def read_findings(
    tx: Transaction, policy: Policy, answer: Answer, *, default_channel: str
) -> Findings:
    """Read what an answer says, with the rights of its requester and of its channel's readers."""
    rights = _get_rights(policy, answer.person)
    shown = _list_shown_hosts(policy, answer, default_channel)
    with view_conditions.viewing_as(tx, rights):
        numbers = view_conditions.list_viewable(tx, answer.runs or ())
        timelines = [
            timeline.build_timeline(
                tx, tx.now, span=WINDOW_HOURS * HOUR, host_pattern=host, limit=_MAX_READ
            )
            for host in answer.hosts
        ]
        known = [one for found in timelines for one in _list_changes(tx, found.events)]
    events = {
        (one.at, one.run, one.entry): one
        for one in known
        if shown is None or shown.issuperset(one.hosts)
    }
    # Other people read it too, so it names no other run.
    found = sorted(runs.list_runs(tx, sorted(numbers)), key=lambda run: run.id)
    checks = [run.show_references(hide_references) for run in found]
    newest = sorted(events.values(), key=lambda one: one.at, reverse=True)
    return Findings(
        checks,
        [_describe(one, policy) for one in newest[:_MAX_EVENTS]],
        max(0, len(newest) - _MAX_EVENTS),
        _can_view_changes(rights, answer.hosts),
        any(shown is not None and not shown.issuperset(one.hosts) for one in known),
        min((found.searched_span for found in timelines), default=0),
    )


def _describe(event: TimelineEvent, policy: Policy) -> Change:
    """Describe an event; a run by its state, since its result may name runs of others."""
    display = RUN_STATUS_DISPLAYS.get(event.state) if event.run is not None else None
    shown = replace(event, outcome=display.label) if display else event
    number = f"run {event.run} · " if event.run is not None else ""
    return Change(event.at, f"{number}{timeline.describe_event(shown, (), policy.person_names)}")


def _get_rights(policy: Policy, person: str) -> ViewRights:
    return (
        policy.get_agent_view_rights(person, "")
        if is_agent(person)
        else policy.get_view_rights(person)
    )


def _list_shown_hosts(
    policy: Policy, answer: Answer, default_channel: str
) -> frozenset[str] | None:
    """Return the hosts that the readers of the answer may be shown; None: only a person reads."""
    if answer.key.user:
        return None
    return frozenset(
        host.name
        for host in policy.inventory
        if answer.key.channel == (policy.get_area(host.name).channel or default_channel)
    )


def _list_changes(tx: Transaction, found: Sequence[TimelineEvent]) -> list[TimelineEvent]:
    """Return the events that changed a host or may have: no check, and no run before its start."""
    numbers = [one.run for one in found if one.run is not None]
    checks = {run.id for run in runs.list_runs(tx, numbers) if run.kind == "check"}
    return [
        one
        for one in found
        if one.rank not in {_ATTEMPTED_RANK, _GLOBAL_RANK} and one.run not in checks
    ]


def _can_view_changes(rights: ViewRights, hosts: Sequence[str]) -> bool:
    return all(
        rights.can_view(host=host, runbook=words, kind="change")
        for words, runbook in load_catalogue().items()
        if get_kind(runbook) == "change"
        for host in hosts
    )
