"""Pages: templates filled in. Whatever stands in {{ }} is made visible first, then escaped."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bot import moment
from bot.run import Run, State
from bot.web import badge, picture
from bot.web.badge import Badge
from bot.web.shown import Templates, shown
from bot.web.story import plainly

STATIC = Path(__file__).parent / "static"


def page(request: Request, template: str, *, status: int = 200, **things: object) -> HTMLResponse:
    """Draw a whole page. things: what the template speaks of."""
    context = {
        "visitor": getattr(request.state, "visitor", None),
        "halt": getattr(request.state, "halt", None),
        "path": request.url.path,
        **things,
    }
    return HTMLResponse(_environment().get_template(template).render(context), status)


def piece(template: str, **things: object) -> str:
    """Draw a part of a page that is there already."""
    return _environment().get_template(template).render(things)


@cache
def _environment() -> Environment:
    environment = Templates(
        loader=ChoiceLoader([PackageLoader("bot.web"), PackageLoader("bot.charter")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        # What is installed does not change while it runs.
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words: Mapping[str, Any] = {
        "asset": _asset,
        "took": _took,
        "icon": _icon,
        "option": _option,
        "run_state": _run_state,
        "part_state": _part_state,
        "run_badge": badge.RUN,
        "gauge": picture.gauge,
        "tree": picture.tree,
        "step_badge": badge.STEP,
        "standing_badge": badge.STANDING,
        "fire_badge": badge.FIRE,
        "reach_badge": badge.REACH,
        "pin_badge": badge.PIN,
    }
    environment.globals.update(words)
    environment.filters.update(time=_time, utc=moment.utc, span=moment.span, plainly=plainly)
    return environment


def _time(at: int) -> Markup:
    """Draw a moment; the browser's script writes it in the reader's own zone."""
    said = moment.utc(at)
    iso = f"{said[:10]}T{said[11:19]}Z"
    return Markup(f'<time datetime="{iso}" title="{said}" data-moment>{said}</time>')  # noqa: S704 - digits of ours


def _took(run: Run, now: int) -> str:
    """Say how long a run took, or takes so far."""
    if run.started is None:
        return Markup('<span class="text-secondary" aria-label="not started">–</span>')
    if run.ended is None:
        return f"{moment.span(now - run.started)} so far"
    return moment.span(run.ended - run.started)


def _option(value: str, word: str, chosen: str) -> Markup:
    """Draw what a list offers; a macro would take most of the time of the lists of a filter."""
    on = " selected" if value == chosen else ""
    return Markup(f'<option value="{shown(value)}"{on}>{shown(word)}</option>')  # noqa: S704 - both are shown


@cache
def _run_state(state: State) -> Markup:
    """Draw a state's badge: once, since a page has as many as it has runs."""
    return _badge(badge.RUN[state])


@cache
def _part_state(state: State, begun: bool) -> Markup:  # noqa: FBT001 - a template's call
    return _badge(badge.of_part(state, begun=begun))


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
