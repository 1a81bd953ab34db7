"""Rows: what the table of runs says, read as runs."""

import json
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from bot.proposal import Proposal
from bot.run import Origin, Run, State
from bot.store import output
from bot.terms import Terms
from bot.timetable import Timing

_ORIGIN = TypeAdapter(Origin)
_TERMS = TypeAdapter(Terms)


# Many runs have the same of these: it is read once.
@lru_cache(1024)
def _origin(text: str) -> Origin:
    return _ORIGIN.validate_json(text)


@lru_cache(1024)
def _terms(text: str) -> Terms:
    return _TERMS.validate_json(text)


@lru_cache(1024)
def terms_text(terms: Terms) -> str:
    return _TERMS.dump_json(terms).decode()


@lru_cache(1024)
def names(text: str) -> tuple[str, ...]:
    """Read a list of names as it is written into a column."""
    return tuple(json.loads(text))


def run_of(row: Any) -> Run:
    return Run.of(
        {
            "id": row.id,
            "version": row.version,
            "state": State(row.state),
            "words": row.words,
            "kind": row.kind,
            "fields": json.loads(row.fields),
            "request": row.request,
            "host": row.host,
            "area": row.area,
            "asked_by": row.asked_by,
            "origin": _origin(row.origin),
            "reason": row.reason,
            "asked": row.asked,
            "expires": row.expires,
            "started": row.started,
            "ended": row.ended,
            "proposal": Proposal.from_json(row.proposal) if row.proposal else None,
            "digest": row.digest,
            "needed": row.needed,
            "groups": names(row.groups),
            "says": names(row.says),
            "terms": _terms(row.terms),
            "shown": row.shown,
            "reminded": row.reminded,
            "escalated": row.escalated,
            "undo_of": row.undo_of,
            "parent": row.parent,
            "hosts": names(row.hosts),
            "editors": names(row.editors),
            "counters": row.counters,
            "grant": row.grant_id,
            "timing": Timing.from_json(row.timing) if row.timing else None,
            "summary": row.summary,
            "unwell": row.unwell,
            "report": output.report(row.report) if row.report else None,
        }
    )
