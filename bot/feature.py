"""A feature: a subject that an installation could do without, in one folder of bot/features.

It is bound by one line in `bot/features/__init__.py`. The core never imports a feature, nor does
one feature another: a process hands each part to the package that uses it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.workflow.hooks import WorkflowHooks

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.api.deps import CollectMetrics
    from bot.cli.sections import AddedCommand
    from bot.maintenance.digest import DigestSection
    from bot.slack.features import ChatWords
    from bot.slack.run_notices import BuildNotice
    from bot.web.pages import Pages


@dataclass(frozen=True)
class Feature:
    """What one feature adds. Each part is optional, and a function that imports what it returns.

    So a process loads only what it serves: the command line no pages, a worker no chat.
    """

    name: str
    """Its folder."""
    load_commands: "Callable[[], Sequence[AddedCommand]]" = tuple
    """Commands of the terminal."""
    load_pages: "Callable[[], Sequence[Pages]]" = tuple
    load_routes: "Callable[[], Sequence[APIRouter]]" = tuple
    """Routes of the API."""
    load_hooks: "Callable[[], WorkflowHooks]" = WorkflowHooks
    """What it does on the way of a run."""
    load_words: "Callable[[], Sequence[ChatWords]]" = tuple
    """Commands in chat."""
    load_metrics: "Callable[[], Sequence[CollectMetrics]]" = tuple
    load_notices: "Callable[[], Sequence[BuildNotice]]" = tuple
    """Messages in chat about a run, beside its card."""
    load_digest: "Callable[[], Sequence[DigestSection]]" = tuple
    """Sections of the weekly digest."""
