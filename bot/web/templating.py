"""Pages: templates filled in. Whatever stands in {{ }} is made visible first, then escaped."""

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bot.audit.change_log import Entry
from bot.db.search import ListedRun
from bot.model import times
from bot.model.run import Run, Vote
from bot.web import badges, diagrams, rows
from bot.web.assets import STATIC
from bot.web.auth import Visitor
from bot.web.badges import Badge
from bot.web.run_timeline import plainly
from bot.web.shown import Templates, coded, to_shown_text


def page(request: Request, template: str, *, status: int = 200, **things: object) -> HTMLResponse:
    """Draw a whole page. things: what the template speaks of."""
    context = {
        "visitor": getattr(request.state, "visitor", None),
        "halt": getattr(request.state, "halt", None),
        "path": request.scope["path"],
        **things,
    }
    return HTMLResponse(_environment().get_template(template).render(context), status)


def piece(template: str, **things: object) -> str:
    """Draw a part of a page that is there already."""
    return _environment().get_template(template).render(things)


@cache
def _environment() -> Environment:
    environment = Templates(
        loader=ChoiceLoader([PackageLoader("bot.web"), PackageLoader("bot.policy.summary")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=to_shown_text,
        # What is installed does not change while it runs.
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words: Mapping[str, Any] = {
        "asset": _asset,
        "kept": kept,
        "took": rows.took,
        "run_rows": _run_rows,
        "entry_rows": _entry_rows,
        "icon": _icon,
        "run_state": _run_state,
        "part_state": _part_state,
        "run_badge": badges.RUN,
        "gauge": diagrams.gauge,
        "tree": diagrams.tree,
        "step_badge": badges.STEP,
        "standing_badge": badges.STANDING,
        "fire_badge": badges.FIRE,
        "reach_badge": badges.REACH,
        "pin_badge": badges.PIN,
    }
    environment.globals.update(words)
    environment.filters.update(
        time=rows.time, utc=times.format_utc, span=times.format_span, plainly=plainly, coded=coded
    )
    return environment


def kept(template: str, **things: Hashable) -> Markup:
    """Draw what is the same on page after page: once for the things that it is drawn of."""
    return _drawn_once(template, tuple(things.items()))


# Some megabytes at the most, where there are a thousand hosts to choose from.
@lru_cache(128)
def _drawn_once(template: str, things: tuple[tuple[str, Hashable], ...]) -> Markup:
    return Markup(piece(template, **dict(things)))  # noqa: S704 - a template's


def _run_rows(
    runs: Iterable[Run | ListedRun],
    votes: Mapping[int, Sequence[Vote]],
    now: int,
    visitor: Visitor,
    with_host: bool,  # noqa: FBT001 - a template's call
) -> Markup:
    return rows.of_runs(runs, votes, visitor.name, _run_state, now=now, with_host=with_host)


def _entry_rows(
    entries: Iterable[Entry],
    visitor: Visitor,
    with_run: bool,  # noqa: FBT001 - a template's call
) -> Markup:
    return rows.of_entries(entries, visitor.name, with_run=with_run)


@cache
def _run_state(standing: str) -> Markup:
    """Draw a state's badge: once, since a page has as many as it has runs."""
    return _badge(badges.RUN[standing])


@cache
def _part_state(standing: str, begun: bool) -> Markup:  # noqa: FBT001 - a template's call
    return _badge(badges.of_part(standing, begun=begun))


@cache
def _icon(name: str) -> Markup:
    """Draw one of icons.html: once, since a page has many of few."""
    macros: Any = _environment().get_template("icons.html").module
    return macros.icon(name)


def _badge(one: Badge) -> Markup:
    macros: Any = _environment().get_template("bits.html").module
    return macros.badge(one)


@cache
def _asset(name: str) -> str:
    """Return where a file of ours is found, so named that it can be kept for good."""
    path = STATIC / name
    version = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "missing"
    return f"/static/{name}?v={version}"
