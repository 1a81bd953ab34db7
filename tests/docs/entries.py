"""The page about the entries of the change log, from the classes of their events."""

import dataclasses
from typing import Any, cast

from bot.audit import events
from bot.audit.event_type import Event
from tests.docs.markdown import escape_text, format_paragraph, format_table, join_blocks

_INTRODUCTION = """
Every kind of entry in the [change log](change-log.md), with the facts in its JSON. A fact that has
its default (an empty text or list, `null`, `false`) is left out. Entries in bold decide whether a
run may start or continue; those in italics revoke something: the gate notices if one of them was
removed. `make docs` writes this page from the classes in `bot/audit/events.py`.
"""


def build_entries_page() -> str:
    types = sorted(events.EVENT_TYPES, key=lambda each: each.kind)
    rows = [_build_row(each) for each in types]
    table = format_table(("kind", "meaning", "facts"), rows)
    return join_blocks(["# Entries of the change log", format_paragraph(_INTRODUCTION), table])


def _build_row(event_type: type[Event]) -> tuple[str, str, str]:
    mark = "**" if event_type.decides else "*" if event_type.revokes else ""
    facts = [f"`{field.name}`" for field in dataclasses.fields(cast("Any", event_type))]
    return (
        f"{mark}{event_type.kind}{mark}",
        escape_text(event_type.__doc__ or ""),
        ", ".join(facts),
    )
