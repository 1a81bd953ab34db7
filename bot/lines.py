"""Entries of the change log as lines: for a terminal, and as JSON for programs. Pure."""

import json
from datetime import UTC, datetime

from bot.moment import iso
from bot.store.changelog import Entry
from bot.visible import one_line


def moment(microseconds: int) -> datetime:
    """Return a stored time, in UTC."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


def as_text(entry: Entry) -> str:
    """Return one line: when, number, run, what, who, where, and the beginning of its hash."""
    when = moment(entry.at).strftime("%Y-%m-%d %H:%M:%SZ")
    who = f" by {entry.person}" if entry.person else ""
    where = f" on {entry.host}" if entry.host else ""
    run = f"run {entry.run}" if entry.run else "-"
    what = entry.facts.get("command") or entry.facts.get("summary") or ""
    said = f": {one_line(str(what))}" if what else ""
    return f"{when}  #{entry.seq:<5} {run:<8} {entry.kind}{who}{where}{said}  [{entry.hash[:12]}]"


def as_json(entry: Entry) -> str:
    """Return the entry as one JSON object, its facts unfolded."""
    shown = {name: value for name, value in vars(entry).items() if name != "body"}
    told = {"at": iso(entry.at), "facts": entry.facts}
    return json.dumps(shown | told, ensure_ascii=False)
