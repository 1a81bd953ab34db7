"""Render page templates with Jinja: control characters become visible, values are escaped."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.templating import Jinja2Templates

from bot.model import run_states, times
from bot.model.schedule import list_time_zones
from bot.model.text import describe_length, escape_control, format_count, format_sentence
from bot.queries.run_timeline import (
    describe_facts,
    format_kind,
    get_fact_label,
    summarise_facts,
)
from bot.web import badges, terminal_text
from bot.web.assets import STATIC_DIRECTORY
from bot.web.deps import WebDependencies
from bot.web.pages import list_links, list_sections

# Text between backticks.
_QUOTED_PATTERN = re.compile(r"`([^`\s](?:[^`\n]*[^`\s])?)`")
_TIME = Markup('<time datetime="{0}T{1}Z" title="{0} {1} UTC" data-local-time>{0} {1} UTC</time>')
# Pages that belong to another page of the menu.
_SECTIONS = {
    "/changes": "/runs",
    "/health": "/policy",
}


def render_page(
    request: Request, template: str, *, status: int = 200, **variables: object
) -> HTMLResponse:
    """Render a whole page.

    Args:
        request: The request that the page answers.
        template: File name of the template.
        status: HTTP status of the response.
        variables: Variables of the template.
    """
    return load_templates().TemplateResponse(request, template, variables, status)


def render_part(template: str, **variables: object) -> str:
    """Render a part of a page with the given variables."""
    return load_templates().get_template(template).render(variables)


def make_visible(value: object) -> Markup | str:
    """Return a value as text with control and bidi characters spelt out. Markup is unchanged.

    Jinja calls it for every value before escaping.
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    return text if text.isprintable() else escape_control(text.replace("\r\n", "\n"))


def render_code(text: str) -> Markup:
    """Return a text as HTML: `<code>` around what is between backticks, `<time>` around times."""
    parts = _QUOTED_PATTERN.split(text)
    # The parts at odd indexes were between backticks.
    parts[0::2] = map(render_times, parts[0::2])
    parts[1::2] = [Markup("<code>%s</code>") % make_visible(part) for part in parts[1::2]]
    return Markup("").join(parts)


def render_times(text: str) -> Markup:
    """Return a text as HTML, with `<time>` around UTC times: pages show them in local time."""
    parts = times.split_times(text)
    if all(at is None for _, at in parts):
        return escape(make_visible(text))
    return Markup("").join(
        make_visible(part) if at is None else _TIME.format(part[:10], part[11:].rstrip(" UTCZ"))
        for part, at in parts
    )


def get_reader_zone(request: Request) -> str:
    """Return the time zone of the browser, as theme.js reports it; UTC if it is not known."""
    name = request.cookies.get("keyturn-zone", "")
    return name if name in list_time_zones() else "UTC"


def parse_reader_deadline(request: Request, text: str, *, now: int) -> int:
    """Parse a time in the future, in the reader's zone. Raises InvalidTimeError."""
    return times.parse_deadline(text, now=now, zone=get_reader_zone(request))


def start_sentence(text: str) -> str:
    """Return a text with a capital letter at its start; the other letters keep their case."""
    return text[:1].upper() + text[1:]


def format_clock(at: int, zone: str) -> str:
    """Return the time of day in a time zone: `03:00`."""
    return times.format_timestamp(at, zone)[11:16]


@cache
def load_templates() -> Jinja2Templates:
    """Return the environment of all page templates; every value in it is escaped."""
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("bot.web"),
                PackageLoader("bot.policy"),
                # Templates of features: `drift/drift.html`.
                PackageLoader("bot", "features"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=make_visible,
        # Installed templates do not change while the service runs.
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    variables: Mapping[str, Any] = {
        "asset": _asset_address,
        "describe_facts": describe_facts,
        "summarise_facts": summarise_facts,
        "describe_child_run": run_states.get_child_run_display,
        "describe_outcome": run_states.describe_outcome,
        "describe_run": run_states.get_run_display,
        "format_count": format_count,
        "render_output": terminal_text.render_output,
        "format_clock": format_clock,
        "statuses": run_states.RUN_STATUS_DISPLAYS,
        "step_badge": run_states.STEP_STATE_DISPLAYS,
        "reachability_badge": badges.REACHABILITY_BADGES,
        "host_key_badge": badges.HOST_KEY_BADGES,
        "effect_badge": badges.EFFECT_BADGES,
    }
    environment.globals.update(variables)
    environment.filters.update(
        utc=times.format_utc,
        local_times=render_times,
        span=times.format_span,
        fact_label=get_fact_label,
        code_spans=render_code,
        length_words=describe_length,
        sentence=format_sentence,
        start_sentence=start_sentence,
        kind_words=format_kind,
        plain_output=terminal_text.remove_escape_sequences,
        short_hash=_hash_text,
    )
    icons: Any = environment.get_template("icons.html").module
    environment.globals["icon"] = icons.icon
    return Jinja2Templates(env=environment, context_processors=[_list_common_variables])


def _list_common_variables(request: Request) -> dict[str, Any]:
    """Return the variables that the layout of every page needs."""
    # The request guard refuses before the application is known.
    app = request.scope.get("app")
    deps: WebDependencies | None = getattr(app.state, "deps", None) if app else None
    pages = deps.pages if deps else ()
    return {
        "menu_sections": {**_SECTIONS, **list_sections(pages)},
        "links": partial(list_links, pages),
        "user": getattr(request.state, "user", None),
        "active_stop": getattr(request.state, "active_stop", None),
        "path": request.scope["path"],
        "zone": get_reader_zone(request),
    }


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _asset_address(name: str) -> str:
    """Return the address of a static file with a hash of its content, for caching."""
    path = STATIC_DIRECTORY / name
    version = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "missing"
    return f"/static/{name}?v={version}"
