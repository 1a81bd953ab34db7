"""The timeline of a run: its log entries described for people. Pure."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bot.audit.change_log import Entry
from bot.model.agents import WRITTEN_BY_AGENT
from bot.model.run import State, get_run_status
from bot.model.run_states import RUN_STATUS_DISPLAYS, Tone
from bot.model.times import SECOND, format_span, format_utc

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
    """Return the facts of an entry; its raw text where it was altered and has none."""
    return entry.facts or ({} if entry.body == "{}" else {"body": entry.body})


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
    who = name_person(entry.person)
    if (pattern := _EVENT_PATTERNS.get(entry.kind)) is not None:
        title, detail, tone, icon = pattern
        texts = defaultdict(str, {name: _get_text(facts, name) for name in facts}, who=who)
        title, detail = title.format_map(texts), detail.format_map(texts)
    elif (describe := _EVENT_DESCRIBERS.get(entry.kind)) is not None:
        title, detail, tone, icon = describe(facts, who)
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


_DRIFT_TITLES = {
    "changed": "Changed outside Keyturn",
    "missing": "Missing on the host",
    "unreadable": "Cannot be read",
}


def _describe_drift_end(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
    seconds = facts.get("seconds")
    span = f" after {format_span(seconds * SECOND)}" if isinstance(seconds, int) else ""
    return "Drift ended", f"{_get_text(facts, 'key')}{span}", Tone.SUCCESS, "check"


_REASON, _STEP_ERROR = "{reason}", "{error}"
# Title, detail, tone and icon of the kinds whose facts are inserted as they are; {who}: the name
# of the person.
_EVENT_PATTERNS: Mapping[str, tuple[str, str, str, str]] = {
    "plan requested": ("Plan requested by {who}", _REASON, Tone.INFO, "person"),
    "approved": ("Approved by {who}", _REASON, Tone.SUCCESS, "key"),
    "approval refused": ("Approval refused for {who}", _REASON, Tone.WARNING, "ban"),
    "denial refused": ("Denial refused for {who}", _REASON, Tone.WARNING, "ban"),
    "break-glass requested": ("Break-glass requested by {who}", _REASON, Tone.WARNING, "alert"),
    "break-glass refused": ("Break-glass refused for {who}", _REASON, Tone.WARNING, "ban"),
    "break-glass activated": ("Break-glass activated by {who}", _REASON, Tone.DANGER, "alert"),
    "review required": ("Another person must review it", _REASON, Tone.WARNING, "eye"),
    "break-glass reviewed": ("Reviewed by {who}", _REASON, Tone.SUCCESS, "eye"),
    "more approvals needed": ("One more approval is needed", _REASON, Tone.WARNING, "key"),
    "reminded": ("Approvers reminded", "Needs approval from {approvers}", Tone.INFO, "clock"),
    "escalated": ("Escalated", "Can now be approved by {approvers}", Tone.WARNING, "clock"),
    "proposed": ("Proposed by {who}", "Instead of run {original_run}", Tone.INFO, "swap"),
    "question asked": ("{who} asked a question", "{text}", Tone.WARNING, "question"),
    "question answered": ("{who} answered", "{text}", Tone.INFO, "person"),
    "reassigned": ("Reassigned to {assignee} by {who}", _REASON, Tone.INFO, "swap"),
    "accepted": ("Accepted by {who}", _REASON, Tone.SUCCESS, "check"),
    "grant used": (
        "Approved by standing grant {grant}",
        "{uses} of {per_hour} this hour",
        Tone.SUCCESS,
        "key",
    ),
    "token used": (
        "{who} used the API",
        "To {action}, with the token {token}…",
        Tone.INFO,
        "key",
    ),
    "stop requested": ("Stop requested by {who}", _REASON, Tone.DANGER, "ban"),
    "stop refused": ("Stop refused for {who}", _REASON, Tone.WARNING, "ban"),
    "withdrawn": ("Withdrawn by {who}", "", Tone.NEUTRAL, "back"),
    "scheduled": ("Schedule {schedule} started", _REASON, Tone.SUCCESS, "clock"),
    "fired": ("Schedule {schedule} fired run {fired_run}", _REASON, Tone.INFO, "clock"),
    "fires missed": (
        "Schedule {schedule} missed {count}",
        "Keyturn was not running then",
        Tone.WARNING,
        "clock",
    ),
    "fire skipped": ("Schedule {schedule} skipped a run", _REASON, Tone.NEUTRAL, "clock"),
    "schedule suspended": ("Schedule {schedule} was suspended", _REASON, Tone.WARNING, "ban"),
    "schedule resumed": ("Schedule {schedule} was resumed by {who}", _REASON, Tone.INFO, "play"),
    "schedule lapsed": (
        "The approval of schedule {schedule} lapsed",
        _REASON,
        Tone.WARNING,
        "clock",
    ),
    "schedule ended": ("Schedule {schedule} ended", _REASON, Tone.NEUTRAL, "back"),
    "resumed": (
        "Resumed by another worker",
        "{worker} executes the remaining steps",
        Tone.INFO,
        "lock",
    ),
    "lease taken over": ("Taken over", "No heartbeat from {worker}", Tone.WARNING, "lock"),
    "claimed": ("Starting on {host}", "Plans again before the first step", Tone.INFO, "lock"),
    "started": ("Started", "The plan is still current", Tone.INFO, "play"),
    "drift adopted": ("Value adopted by {who}", _REASON, Tone.INFO, "person"),
    "drift expected": ("Another value is expected, by {who}", _REASON, Tone.INFO, "clock"),
    "drift answer refused": ("Answer to drift refused for {who}", _REASON, Tone.WARNING, "ban"),
    "step sending": ("Step {step} sent", "{title}", Tone.INFO, "play"),
    "step succeeded": ("Step {step} succeeded", _STEP_ERROR, Tone.SUCCESS, "check"),
    "step failed": ("Step {step} failed", _STEP_ERROR, Tone.DANGER, "cross"),
    "step unknown": (
        "Step {step} has an unknown outcome",
        _STEP_ERROR,
        Tone.WARNING,
        "question",
    ),
    "output erased": ("Output erased by {who}", _REASON, Tone.NEUTRAL, "ban"),
    "erasure requested": ("{who} requested to erase the output", _REASON, Tone.NEUTRAL, "person"),
    "erasure refused": ("Erasure refused for {who}", _REASON, Tone.WARNING, "ban"),
    "erasure declined": ("{who} declined to erase the output", _REASON, Tone.NEUTRAL, "back"),
    "verified": ("Verified", "{current_state}", Tone.SUCCESS, "eye"),
}
_EventDescriber = Callable[[Mapping[str, Any], str], tuple[str, str, str, str]]
# The kinds whose description depends on their facts.
_EVENT_DESCRIBERS: Mapping[str, _EventDescriber] = {
    "requested": _describe_request,
    "planned": _describe_plan,
    "denied": lambda facts, who: (
        f"Denied by {who}",
        _get_text(facts, "summary").partition(": ")[2],
        Tone.DANGER,
        "ban",
    ),
    "counter-proposed": lambda facts, who: (
        f"{who} proposed other values",
        format_fact(facts.get("values") or ""),
        Tone.WARNING,
        "swap",
    ),
    "followed up": lambda facts, _who: (
        "Follow-up finished" if facts.get("healthy") else "Follow-up finished: needs attention",
        _get_text(facts, "summary"),
        Tone.SUCCESS if facts.get("healthy") else Tone.WARNING,
        "eye",
    ),
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
}
