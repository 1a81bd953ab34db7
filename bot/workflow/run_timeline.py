"""The timeline of a run: its log entries in words for people. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bot.audit.change_log import Entry
from bot.model.run import State, status_of
from bot.model.run_states import STATUSES, Tone
from bot.model.times import format_utc

Name = Callable[[str], str]
# The host that an entry is about, among what it says.
_HOST = "host"
_UNTOLD = frozenset({"mark", _HOST})


@dataclass(frozen=True)
class RunEvent:
    """One line of the timeline. tone, icon: as in run_states. seq: the entry's number."""

    at: int
    title: str
    detail: str
    tone: str
    icon: str
    seq: int


_DOORS = {
    "slack": "in Slack",
    "web": "on the web",
    "api": "through the API",
    "cli": "on the command line",
    "schedule": "by schedule",
}


def list_timeline(entries: Sequence[Entry], name: Name) -> list[RunEvent]:
    """Describe the entries of one run, oldest first. name: returns a person's name."""
    return [_event(entry, name) for entry in entries]


def get_entry_facts(entry: Entry) -> Mapping[str, Any]:
    """Return what the entry says; the text as it is where somebody has garbled it."""
    try:
        told: Any = entry.facts
    except ValueError:
        told = None
    return cast("Mapping[str, Any]", told) if isinstance(told, dict) else {"body": entry.body}


def format_fact(fact: object) -> str:
    """Write one fact for people: short ones on a line, others as JSON to unfold."""
    if isinstance(fact, str):
        return fact
    # Microseconds since 1970, of this century; nothing else that is told of is so large.
    if isinstance(fact, int) and 10**15 < fact < 4 * 10**15:
        return format_utc(fact)
    if isinstance(fact, Mapping):
        known = cast("Mapping[str, object]", fact)
        if all(isinstance(value, (str, int)) for value in known.values()):
            return " ".join(f"{name}={value}" for name, value in known.items())
    if isinstance(fact, list):
        several = cast("list[object]", fact)
        if all(isinstance(value, (str, int)) for value in several):
            return ", ".join(map(str, several))
    return json.dumps(fact, indent=2, ensure_ascii=False)


def _event(entry: Entry, name: Name) -> RunEvent:
    told = {_HOST: entry.host or "the host", **get_entry_facts(entry)}
    teller = _TELLERS.get(entry.kind)
    if teller is not None:
        title, detail, tone, icon = teller(told, name(entry.person))
    else:
        title, detail, tone, icon = _ending(entry.kind, told)
    return RunEvent(entry.at, title, detail, tone, icon, entry.seq)


def _ending(kind: str, facts: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Tell of a state that a run came to; or of an event that only a newer version knows."""
    detail = str(facts.get("summary", ""))
    try:
        shown = STATUSES[status_of(State(kind), unwell=facts.get("healthy") is False)]
    except ValueError:
        return kind.capitalize(), detail, Tone.NEUTRAL, "dot"
    return shown.label, detail, shown.tone, shown.icon


def _text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key)
    return "" if value is None else str(value)


def _asked(facts: Mapping[str, Any], who: str) -> tuple[str, str, str, str]:
    where = _DOORS.get(_text(facts, "door"), "")
    reason = _text(facts, "reason")
    return f"Asked by {who} {where}".strip(), f"“{reason}”" if reason else "", Tone.INFO, "person"


def _planned(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
    wanted = facts.get("approvals") or 0
    keys = "no approval needed" if not wanted else f"{wanted} approval{'s'[: wanted != 1]} needed"
    if wanted and facts.get("whose"):
        keys += f" from {_text(facts, 'whose')}"
    return "Planned", f"{keys}; digest {_text(facts, 'digest')[:10]}", Tone.INFO, "list"


def _with_reason(title: str, tone: str, icon: str):
    def tell(facts: Mapping[str, Any], who: str) -> tuple[str, str, str, str]:
        return title.format(who=who), _text(facts, "why"), tone, icon

    return tell


def _sending(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
    return f"Step {_text(facts, 'n')} sent", _text(facts, "title"), Tone.INFO, "play"


def _step(word: str, tone: str, icon: str):
    def tell(facts: Mapping[str, Any], _who: str) -> tuple[str, str, str, str]:
        return f"Step {_text(facts, 'n')} {word}", _text(facts, "trouble"), tone, icon

    return tell


def _moment(title: str, tone: str, icon: str):
    def tell(facts: Mapping[str, Any], who: str) -> tuple[str, str, str, str]:
        told = title.format(who=who, n=_text(facts, "schedule"), run=_text(facts, "fired"))
        return told, _text(facts, "why"), tone, icon

    return tell


_Teller = Callable[[Mapping[str, Any], str], tuple[str, str, str, str]]
_TELLERS: Mapping[str, _Teller] = {
    "asked": _asked,
    "planned": _planned,
    "approved": _with_reason("Approved by {who}", Tone.SUCCESS, "key"),
    "approval refused": _with_reason("{who} could not approve", Tone.WARNING, "ban"),
    "denial refused": _with_reason("{who} could not deny", Tone.WARNING, "ban"),
    "denied": lambda facts, who: (
        f"Denied by {who}",
        _text(facts, "summary").partition(": ")[2],
        Tone.DANGER,
        "ban",
    ),
    "glass wanted": _with_reason("{who} means to break the glass", Tone.WARNING, "alert"),
    "glass refused": _with_reason("{who} could not break the glass", Tone.WARNING, "ban"),
    "glass broken": _with_reason("{who} broke the glass", Tone.DANGER, "alert"),
    "glass reviewed": _with_reason("Reviewed by {who}", Tone.SUCCESS, "eye"),
    "wanting": _with_reason("One more approval is wanted", Tone.WARNING, "key"),
    "reminded": lambda facts, _who: (
        "Approvers reminded",
        f"It waits for {_text(facts, 'whose')}",
        Tone.INFO,
        "clock",
    ),
    "escalated": lambda facts, _who: (
        "Escalated",
        f"By now it may be approved by {_text(facts, 'whose')}",
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
        f"In place of run {_text(facts, 'instead_of_run')}",
        Tone.INFO,
        "swap",
    ),
    "accepted": _with_reason("Accepted by {who}", Tone.SUCCESS, "check"),
    "grant used": lambda facts, _who: (
        f"Let through by grant {_text(facts, 'grant')}",
        f"{_text(facts, 'used')} of {_text(facts, 'an_hour')} this hour",
        Tone.SUCCESS,
        "key",
    ),
    "token used": lambda facts, who: (
        f"{who} came by the API",
        f"To {_text(facts, 'to')}, with the token {_text(facts, 'token')}…",
        Tone.INFO,
        "key",
    ),
    "stop asked": _with_reason("{who} stops it", Tone.DANGER, "ban"),
    "stop refused": _with_reason("{who} could not stop it", Tone.WARNING, "ban"),
    "withdrawn": lambda _facts, who: (f"Withdrawn by {who}", "", Tone.NEUTRAL, "back"),
    "followed up": lambda facts, _who: (
        "It is over" if facts.get("healthy") else "It is over, and needs attention",
        _text(facts, "summary"),
        Tone.SUCCESS if facts.get("healthy") else Tone.WARNING,
        "eye",
    ),
    "scheduled": _moment("Schedule {n} began", Tone.SUCCESS, "clock"),
    "fired": _moment("Schedule {n} fired run {run}", Tone.INFO, "clock"),
    "fires missed": lambda facts, _who: (
        f"Schedule {_text(facts, 'schedule')} missed {_text(facts, 'n')}",
        "Keyturn was not running then",
        Tone.WARNING,
        "clock",
    ),
    "fire skipped": _moment("Schedule {n} left a moment out", Tone.NEUTRAL, "clock"),
    "schedule suspended": _moment("Schedule {n} was suspended", Tone.WARNING, "ban"),
    "schedule resumed": _moment("Schedule {n} was resumed by {who}", Tone.INFO, "play"),
    "schedule lapsed": _moment("Schedule {n} lapsed", Tone.WARNING, "clock"),
    "schedule ended": _moment("Schedule {n} ended", Tone.NEUTRAL, "back"),
    "resumed": lambda facts, _who: (
        "Another worker goes on",
        f"{_text(facts, 'worker')} does the steps that are left",
        Tone.INFO,
        "lock",
    ),
    "taken over": lambda facts, _who: (
        "Taken over",
        f"{_text(facts, 'worker')} was not heard of any more",
        Tone.WARNING,
        "lock",
    ),
    "claimed": lambda facts, _who: (
        f"Its turn on {_text(facts, _HOST)}",
        "Read once more",
        Tone.INFO,
        "lock",
    ),
    "started": lambda _facts, _who: ("Started", "Nothing had moved since", Tone.INFO, "play"),
    "sending": _sending,
    "step succeeded": _step("done", Tone.SUCCESS, "check"),
    "step failed": _step("failed", Tone.DANGER, "cross"),
    "step unknown": _step("has an unknown end", Tone.WARNING, "question"),
    "asked the host": lambda facts, _who: (
        f"{_text(facts, _HOST)} was asked what became of step {_text(facts, 'n')}",
        f"It {said}" if (said := _text(facts, "says")) else "",
        Tone.WARNING if said else Tone.INFO,
        "question",
    ),
    "host answered": lambda facts, _who: (
        f"{_text(facts, _HOST)} answered",
        f"It {_text(facts, 'says')}",
        Tone.SUCCESS if _text(facts, "status") == "0" else Tone.WARNING,
        "eye",
    ),
    "logging trouble": lambda facts, _who: (
        "The log could not be written",
        "; ".join(f"{name} {value}" for name, value in facts.items() if name not in _UNTOLD),
        Tone.WARNING,
        "question",
    ),
    "output erased": _with_reason(
        "What the host answered was erased by {who}", Tone.NEUTRAL, "ban"
    ),
    "erasure asked": _with_reason(
        "{who} asks to erase what the host answered", Tone.NEUTRAL, "person"
    ),
    "erasure refused": _with_reason("{who} could not decide what is erased", Tone.WARNING, "ban"),
    "erasure declined": _with_reason("{who} declined to have it erased", Tone.NEUTRAL, "back"),
    "proven": lambda facts, _who: (
        "Proven by reading again",
        _text(facts, "because"),
        Tone.SUCCESS,
        "eye",
    ),
}
