"""A feature: a subject that an installation could do without, in one folder of bot/features.

It is bound by one line in `bot/features/__init__.py`. The core never imports a feature, nor does
one feature another: a process hands each part to the package that uses it.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.routing import BaseRoute

    from bot.api.deps import CollectMetrics
    from bot.cli.command_table import CommandEntry
    from bot.db.database import Database
    from bot.health import CheckWithPolicy
    from bot.model.redaction import Redactor
    from bot.policy import PolicySource
    from bot.queries.digest import BuildDigest, ListEnds
    from bot.service import KeyturnService
    from bot.settings import Settings
    from bot.slack.features import ChatFeatures
    from bot.web.deps import ComponentHealth
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks


@dataclass(frozen=True)
class ServerContext:
    """From what a feature builds what it runs in a server."""

    settings: "Settings"
    database: "Database"
    policies: "PolicySource"
    """The policy without banned people."""
    service: "KeyturnService"
    redactor: "Redactor"
    digest: "Sequence[BuildDigest]"
    """Of all features."""
    ends: "Sequence[ListEnds]"
    """Of all features."""


@dataclass(frozen=True)
class ServerPart:
    """What a feature runs in a server, beside what it answers to people and programs."""

    duties: Sequence[Callable[[], object]] = ()
    """Are called again and again; they may be slow."""
    tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Run until they are cancelled."""
    routes: "Sequence[BaseRoute]" = ()
    """Beside pages and API."""
    health_checks: "Mapping[str, Callable[[], ComponentHealth]]" = field(
        default_factory=dict[str, "Callable[[], ComponentHealth]"]
    )


def _run_nothing(_context: ServerContext) -> ServerPart:
    return ServerPart()


@dataclass(frozen=True)
class Feature:
    """What one feature adds. Each part is optional, and a function that imports what it returns.

    So a process loads only what it serves: the command line no pages, a worker no chat.
    """

    name: str
    """Its folder."""
    commands: "Sequence[CommandEntry]" = ()
    """Commands of the terminal."""
    load_pages: "Callable[[], Sequence[Pages]]" = tuple
    load_routes: "Callable[[], Sequence[APIRouter]]" = tuple
    """Routes of the API."""
    load_hooks: "Callable[[], WorkflowHooks] | None" = None
    """What it does on the way of a run."""
    load_chat: "Callable[[], ChatFeatures] | None" = None
    """What it adds to chat."""
    load_checks: "Callable[[], Sequence[CheckWithPolicy]]" = tuple
    """Checks of the page Health and of `keyturn doctor`."""
    build_server_part: Callable[[ServerContext], ServerPart] = _run_nothing
    load_metrics: "Callable[[], Sequence[CollectMetrics]]" = tuple
    load_digest: "Callable[[], Sequence[BuildDigest]]" = tuple
    """Sections of the weekly digest."""
    load_ends: "Callable[[], Sequence[ListEnds]]" = tuple
    """Entries about what ends soon."""
