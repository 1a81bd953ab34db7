"""The timeline of a run: its log entries described for people. Pure."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bot.audit.change_log import Entry
from bot.model.agents import WRITTEN_BY_AGENT
from bot.model.run import State, get_run_status
from bot.model.run_states import RUN_STATUS_DISPLAYS, Tone
from bot.model.times import format_span, format_utc

NamePerson = Callable[[str], str]
# The host of an entry, among its facts.
_HOST_FACT = "host"
_HIDDEN_FACTS = frozenset({"mark", _HOST_FACT})


@dataclass(frozen=True)
class RunEvent:
    """One line of the timeline. Tone and icon are those of run_states."""

    at: int
    title: str
    detail: str
    tone: str
    icon: str
    seq: int
    """The number of the log entry."""


_SOURCE_LABELS = {
    "slack": "in Slack",
    "web": "on the web",
    "api": "through the API",
    "cli": "on the command line",
    "mcp": "as an agent",
    "schedule": "by schedule",
}


def build_run_events(entries: Sequence[Entry], name_person: NamePerson) -> list[RunEvent]:
    """Describe the entries of one run, oldest first. name_person: returns the name for an id."""
    return [_build_event(entry, name_person) for entry in entries]


def get_entry_facts(entry: Entry) -> Mapping[str, Any]:
    """Return the facts of an entry; its raw text where it was altered and is not valid JSON."""
    try:
        facts: Any = entry.facts
    except ValueError:
        facts = None
    return cast("Mapping[str, Any]", facts) if isinstance(facts, dict) else {"body": entry.body}


# Names of facts for people, where the name itself is not plain. One table for pages and exports.
_FACT_LABELS: Mapping[str, str] = {
    "approver_groups": "Approvals from",
    "catch_up": "Missed runs to catch up",
    "created_at": "Created",
    "cron": "Cron expression",
    "digest": "Plan digest",
    "ends_at": "Ends",
    "exit_status": "Exit status",
    "factor": "Second factor",
    "fence": "Fencing token",
    "fired_run": "Run",
    "from_": "From",
    "granted_by": "Granted by",
    "granted_to": "Granted to",
    "guard_override": "Guard override",
    "healthy": "No problem found",
    "lapses_at": "Approval of the schedule ends",
    "legs": "Redundant parts",
    "on_behalf_of": "On behalf of",
    "output_sha256": "Hash of the output",
    "per_hour": "Uses per hour",
    "replaces": "Replaces schedule",
    "required_approvals": "Approvals needed",
    "spread": "Spread (minutes)",
    "undo_of": "Undo of run",
    "what": "Request",
}
# Facts whose values are ids of people.
_PERSON_FACTS = frozenset(
    {
        *("agent_owner", "approvers", "assignee", "banned_by", "behalf", "banned_person"),
        *("delegate", "delegator", "editors", "granted_by", "granted_to", "on_behalf_of"),
        *("owner", "requested_by", "stopped_by"),
    }
)

_HASH_PATTERN = re.compile(r"\b[0-9a-f]{64}\b")
# Facts that are shown only when an entry is unfolded.
_UNSUMMARISED = _HIDDEN_FACTS | {"approver_groups", "area", "digest", "body"}


def get_fact_label(name: str) -> str:
    """Return the name of a fact for people: `Approvals needed`."""
    return _FACT_LABELS.get(name, name.strip("_").replace("_", " ").capitalize())


def describe_fact(name: str, fact: object, name_person: NamePerson) -> str:
    """Return the value of a fact for people, with the names of people instead of their ids."""
    if name in _PERSON_FACTS and isinstance(fact, str):
        return name_person(fact)
    if name in _PERSON_FACTS and isinstance(fact, list):
        return ", ".join(name_person(str(one)) for one in cast("list[object]", fact))
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if name == "timing" and isinstance(fact, Mapping):
        timing = cast("Mapping[str, object]", fact)
        return "; ".join(f"{get_fact_label(key)}: {timing[key]}" for key in timing)
    return format_fact(fact)


def summarise_facts(entry: Entry, name_person: NamePerson) -> str:
    """Return the host and the short facts of an entry on one line; ids and plans are left out."""
    parts = [entry.host] if entry.host else []
    for name, fact in get_entry_facts(entry).items():
        if fact in ("", None, [], {}) or name in _UNSUMMARISED:
            continue
        text = describe_fact(name, fact, name_person)
        if "\n" not in text and not _HASH_PATTERN.search(text):
            parts.append(f"{get_fact_label(name)}: {text}")
    return " · ".join(parts)


def format_fact(fact: object) -> str:
    """Format one fact for people: short ones on one line, others as indented JSON."""
    if isinstance(fact, str):
        return fact
    # Microseconds since 1970, of this century; no other number in the log is as large.
    if isinstance(fact, int) and 10**15 < fact < 4 * 10**15:
        return format_utc(fact)
    if fact is None or isinstance(fact, (int, float)):
        return json.dumps(fact)
    if isinstance(fact, Mapping):
        known = cast("Mapping[str, object]", fact)
        if all(isinstance(value, (str, int)) for value in known.values()):
            return " ".join(f"{name}={value}" for name, value in known.items())
    if isinstance(fact, list):
        several = cast("list[object]", fact)
        if all(isinstance(value, (str, int)) for value in several):
            return ", ".join(map(str, several))
    return json.dumps(fact, indent=2, ensure_ascii=False)


def _build_event(entry: Entry, name_person: NamePerson) -> RunEvent:
    facts = {_HOST_FACT: entry.host or "the host", **get_entry_facts(entry)}
    if "assignee" in facts:
        facts["assignee"] = name_person(str(facts["assignee"]))
    describe = _EVENT_DESCRIBERS.get(entry.kind)
    if describe is not None:
        title, detail, tone, icon = describe(facts, name_person(entry.person))
    else:
        title, detail, tone, icon = _describe_end(entry.kind, facts)
    return RunEvent(entry.at, title, detail, tone, icon, entry.seq)


def _describe_end(kind: str, facts: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Describe a state of the run, or an event that only a newer version knows."""
    detail = str(facts.get("summary", ""))
    try:
        shown = RUN_STATUS_DISPLAYS[
            get_run_status(State(kind), needs_attention=facts.get("healthy") is False)
        ]
    except ValueError:
        return kind.capitalize(), detail, Tone.NEUTRAL, "dot"
    return shown.label, detail, shown.tone, shown.icon


def _get_text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key)
    return "" if value is None else str(value)


def _describe_request(facts: Mapping[str, Any], person_name: str) -> tuple[str, str, str, str]:
    where = _SOURCE_LABELS.get(_get_text(facts, "source"), "")
    reason = _get_text(facts, "reason")
    behalf = _get_text(facts, "behalf")
    who = f"{person_name} for {behalf}" if behalf else person_name
    by_agent = f" ({WRITTEN_BY_AGENT})" if "agent_owner" in facts else ""
    return (
        f"Requested by {who} {where}".strip(),
        f"“{reason}”{by_agent}" if reason else "",
        Tone.INFO,
        "person",
    )


def _describe_plan(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
    wanted = facts.get("required_approvals") or 0
    text = "No approval needed" if not wanted else f"{wanted} approval{'s'[: wanted != 1]} needed"
    if wanted and facts.get("approvers"):
        text += f" from {_get_text(facts, 'approvers')}"
    return "Planned", f"{text}; digest {_get_text(facts, 'digest')[:10]}", Tone.INFO, "list"


def _create_reason_describer(title: str, tone: str, icon: str):
    def describe(facts: Mapping[str, Any], who: str) -> tuple[str, str, str, str]:
        return title.format(who=who), _get_text(facts, "reason"), tone, icon

    return describe


def _describe_sent_step(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
    return f"Step {_get_text(facts, 'step')} sent", _get_text(facts, "title"), Tone.INFO, "play"


def _create_step_describer(outcome: str, tone: str, icon: str):
    def describe(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
        return f"Step {_get_text(facts, 'step')} {outcome}", _get_text(facts, "error"), tone, icon

    return describe


def _create_schedule_describer(title: str, tone: str, icon: str):
    def describe(facts: Mapping[str, Any], who: str) -> tuple[str, str, str, str]:
        text = title.format(
            who=who, n=_get_text(facts, "schedule"), run=_get_text(facts, "fired_run")
        )
        return text, _get_text(facts, "reason"), tone, icon

    return describe


_DRIFT_TITLES = {
    "changed": "Changed outside Keyturn",
    "missing": "Missing on the host",
    "unreadable": "Cannot be read",
}


def _describe_drift_end(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
    seconds = facts.get("seconds")
    span = f" after {format_span(seconds * 1_000_000)}" if isinstance(seconds, int) else ""
    return "Drift ended", f"{_get_text(facts, 'key')}{span}", Tone.SUCCESS, "check"


_EventDescriber = Callable[[Mapping[str, Any], str], tuple[str, str, str, str]]
_EVENT_DESCRIBERS: Mapping[str, _EventDescriber] = {
    "requested": _describe_request,
    "plan requested": _create_reason_describer("Plan requested by {who}", Tone.INFO, "person"),
    "planned": _describe_plan,
    "approved": _create_reason_describer("Approved by {who}", Tone.SUCCESS, "key"),
    "approval refused": _create_reason_describer(
        "Approval refused for {who}", Tone.WARNING, "ban"
    ),
    "denial refused": _create_reason_describer("Denial refused for {who}", Tone.WARNING, "ban"),
    "denied": lambda facts, who: (
        f"Denied by {who}",
        _get_text(facts, "summary").partition(": ")[2],
        Tone.DANGER,
        "ban",
    ),
    "break-glass requested": _create_reason_describer(
        "Break-glass requested by {who}", Tone.WARNING, "alert"
    ),
    "break-glass refused": _create_reason_describer(
        "Break-glass refused for {who}", Tone.WARNING, "ban"
    ),
    "break-glass activated": _create_reason_describer(
        "Break-glass activated by {who}", Tone.DANGER, "alert"
    ),
    "review required": _create_reason_describer(
        "Another person must review it", Tone.WARNING, "eye"
    ),
    "break-glass reviewed": _create_reason_describer("Reviewed by {who}", Tone.SUCCESS, "eye"),
    "more approvals needed": _create_reason_describer(
        "One more approval is needed", Tone.WARNING, "key"
    ),
    "reminded": lambda facts, _who: (
        "Approvers reminded",
        f"Needs approval from {_get_text(facts, 'approvers')}",
        Tone.INFO,
        "clock",
    ),
    "escalated": lambda facts, _who: (
        "Escalated",
        f"Can now be approved by {_get_text(facts, 'approvers')}",
        Tone.WARNING,
        "clock",
    ),
    "counter-proposed": lambda facts, who: (
        f"{who} proposed other values",
        format_fact(facts.get("values") or ""),
        Tone.WARNING,
        "swap",
    ),
    "proposed": lambda facts, who: (
        f"Proposed by {who}",
        f"Instead of run {_get_text(facts, 'original_run')}",
        Tone.INFO,
        "swap",
    ),
    "question asked": lambda facts, who: (
        f"{who} asked a question",
        _get_text(facts, "text"),
        Tone.WARNING,
        "question",
    ),
    "question answered": lambda facts, who: (
        f"{who} answered",
        _get_text(facts, "text"),
        Tone.INFO,
        "person",
    ),
    "reassigned": lambda facts, who: (
        f"Reassigned to {_get_text(facts, 'assignee')} by {who}",
        _get_text(facts, "reason"),
        Tone.INFO,
        "swap",
    ),
    "accepted": _create_reason_describer("Accepted by {who}", Tone.SUCCESS, "check"),
    "grant used": lambda facts, _who: (
        f"Approved by standing grant {_get_text(facts, 'grant')}",
        f"{_get_text(facts, 'uses')} of {_get_text(facts, 'per_hour')} this hour",
        Tone.SUCCESS,
        "key",
    ),
    "token used": lambda facts, who: (
        f"{who} used the API",
        f"To {_get_text(facts, 'action')}, with the token {_get_text(facts, 'token')}…",
        Tone.INFO,
        "key",
    ),
    "stop requested": _create_reason_describer("Stop requested by {who}", Tone.DANGER, "ban"),
    "stop refused": _create_reason_describer("Stop refused for {who}", Tone.WARNING, "ban"),
    "withdrawn": lambda _facts, who: (f"Withdrawn by {who}", "", Tone.NEUTRAL, "back"),
    "followed up": lambda facts, _who: (
        "Follow-up finished" if facts.get("healthy") else "Follow-up finished: needs attention",
        _get_text(facts, "summary"),
        Tone.SUCCESS if facts.get("healthy") else Tone.WARNING,
        "eye",
    ),
    "scheduled": _create_schedule_describer("Schedule {n} started", Tone.SUCCESS, "clock"),
    "fired": _create_schedule_describer("Schedule {n} fired run {run}", Tone.INFO, "clock"),
    "fires missed": lambda facts, _who: (
        f"Schedule {_get_text(facts, 'schedule')} missed {_get_text(facts, 'count')}",
        "Keyturn was not running then",
        Tone.WARNING,
        "clock",
    ),
    "fire skipped": _create_schedule_describer(
        "Schedule {n} skipped a run", Tone.NEUTRAL, "clock"
    ),
    "schedule suspended": _create_schedule_describer(
        "Schedule {n} was suspended", Tone.WARNING, "ban"
    ),
    "schedule resumed": _create_schedule_describer(
        "Schedule {n} was resumed by {who}", Tone.INFO, "play"
    ),
    "schedule lapsed": _create_schedule_describer(
        "The approval of schedule {n} lapsed", Tone.WARNING, "clock"
    ),
    "schedule ended": _create_schedule_describer("Schedule {n} ended", Tone.NEUTRAL, "back"),
    "resumed": lambda facts, _who: (
        "Resumed by another worker",
        f"{_get_text(facts, 'worker')} executes the remaining steps",
        Tone.INFO,
        "lock",
    ),
    "lease taken over": lambda facts, _who: (
        "Taken over",
        f"No heartbeat from {_get_text(facts, 'worker')}",
        Tone.WARNING,
        "lock",
    ),
    "claimed": lambda facts, _who: (
        f"Starting on {_get_text(facts, _HOST_FACT)}",
        "Plans again before the first step",
        Tone.INFO,
        "lock",
    ),
    "started": lambda _facts, _who: ("Started", "The plan is still current", Tone.INFO, "play"),
    "wave started": lambda facts, _who: (
        f"Wave started: {', '.join(map(str, facts.get('hosts', ())))}",
        _get_text(facts, "reason").capitalize(),
        Tone.INFO,
        "play",
    ),
    "legs claimed": lambda facts, _who: (
        "Legs claimed",
        "; ".join(map(str, facts.get("legs", ()))),
        Tone.INFO,
        "lock",
    ),
    "leg released": lambda facts, who: (
        f"Leg released by {who}" if who else "Leg released",
        f"{'; '.join(map(str, facts.get('legs', ())))}: {_get_text(facts, 'reason')}",
        Tone.SUCCESS,
        "check",
    ),
    "drift found": lambda facts, _who: (
        _DRIFT_TITLES.get(_get_text(facts, "state"), "Drift found"),
        f"{_get_text(facts, 'key')}: {_get_text(facts, 'value')}",
        Tone.WARNING,
        "swap",
    ),
    "drift ended": _describe_drift_end,
    "drift adopted": _create_reason_describer("Value adopted by {who}", Tone.INFO, "person"),
    "drift expected": _create_reason_describer(
        "Another value is expected, by {who}", Tone.INFO, "clock"
    ),
    "drift answer refused": _create_reason_describer(
        "Answer to drift refused for {who}", Tone.WARNING, "ban"
    ),
    "step sending": _describe_sent_step,
    "step succeeded": _create_step_describer("succeeded", Tone.SUCCESS, "check"),
    "step failed": _create_step_describer("failed", Tone.DANGER, "cross"),
    "step unknown": _create_step_describer("has an unknown outcome", Tone.WARNING, "question"),
    "host queried": lambda facts, _who: (
        f"Queried {_get_text(facts, _HOST_FACT)} for the outcome of step "
        f"{_get_text(facts, 'step')}",
        f"The host {text}" if (text := _get_text(facts, "result")) else "",
        Tone.WARNING if text else Tone.INFO,
        "question",
    ),
    "host answered": lambda facts, _who: (
        f"{_get_text(facts, _HOST_FACT)} returned the outcome",
        f"The host {_get_text(facts, 'result')}",
        Tone.SUCCESS if _get_text(facts, "exit_status") == "0" else Tone.WARNING,
        "eye",
    ),
    "restored by host": lambda facts, _who: (
        f"{_get_text(facts, _HOST_FACT)} restored {_get_text(facts, 'probation')} by itself",
        "The change was not confirmed on probation",
        Tone.WARNING if _get_text(facts, "exit_status") == "0" else Tone.DANGER,
        "back",
    ),
    "logging failed": lambda facts, _who: (
        "The change log could not be written",
        "; ".join(f"{name} {value}" for name, value in facts.items() if name not in _HIDDEN_FACTS),
        Tone.WARNING,
        "question",
    ),
    "output erased": _create_reason_describer("Output erased by {who}", Tone.NEUTRAL, "ban"),
    "erasure requested": _create_reason_describer(
        "{who} requested to erase the output", Tone.NEUTRAL, "person"
    ),
    "erasure refused": _create_reason_describer("Erasure refused for {who}", Tone.WARNING, "ban"),
    "erasure declined": _create_reason_describer(
        "{who} declined to erase the output", Tone.NEUTRAL, "back"
    ),
    "verified": lambda facts, _who: (
        "Verified",
        _get_text(facts, "current_state"),
        Tone.SUCCESS,
        "eye",
    ),
}
