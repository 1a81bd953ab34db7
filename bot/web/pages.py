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
from bot.run import State
from bot.visible import visible
from bot.web import badge, picture
from bot.web.badge import Badge
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
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("bot.web"), PackageLoader("bot.charter")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words: Mapping[str, Any] = {
        "asset": _asset,
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


def _finalize(value: object) -> object:
    """Spell out control and bidi characters of everything but our own markup."""
    if isinstance(value, Markup):
        return value
    return visible(str(value).replace("\r\n", "\n"))


def _time(at: int) -> Markup:
    """Draw a moment; the browser's script writes it in the reader's own zone."""
    said = moment.utc(at)
    return Markup(f'<time datetime="{moment.iso(at)}" title="{said}" data-moment>{said}</time>')  # noqa: S704 - digits of ours


@cache
def _run_state(state: State) -> Markup:
    """Draw a state's badge: once, since a page has as many as it has runs."""
    return _badge(badge.RUN[state])


@cache
def _part_state(state: State, begun: bool) -> Markup:  # noqa: FBT001 - a template's call
    return _badge(badge.of_part(state, begun=begun))


def _badge(shown: Badge) -> Markup:
    macros: Any = _environment().get_template("bits.html").module
    return macros.badge(shown)


@cache
def _asset(name: str) -> str:
    """Return where a file of ours is found, so named that it can be kept for good."""
    path = STATIC / name
    version = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "missing"
    return f"/static/{name}?v={version}"
