"""Watch what runs gave a lasting value: what changed outside Keyturn, and the answers of people.

`state.py` says what a reading means, `reader.py` reads hosts, `watch.py` follows runs, `rows.py`
are the rows of the database, `details.py` is what people see, and `actions.py` what they do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.api.deps import CollectMetrics
    from bot.queries.digest import BuildDigest
    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.drift.details import list_plan_notes, read_value_facts
    from bot.features.drift.reader import build_duties
    from bot.features.drift.watch import watch_run
    from bot.workflow.hooks import WorkflowHooks

    return WorkflowHooks(
        on_run_end=[watch_run],
        list_plan_notes=[list_plan_notes],
        read_value_facts=[read_value_facts],
        build_host_duties=[build_duties],
    )


def _load_pages() -> "Sequence[Pages]":
    from bot.features.drift.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.drift.routes import router

    return [router]


def _load_chat() -> "ChatFeatures":
    from bot.features.drift.chat import CHAT

    return CHAT


def _load_metrics() -> "Sequence[CollectMetrics]":
    from bot.features.drift.metrics import collect_watched_values

    return [collect_watched_values]


def _load_digest() -> "Sequence[BuildDigest]":
    from bot.features.drift.details import build_digest

    return [build_digest]


FEATURE = Feature(
    "drift",
    load_hooks=_load_hooks,
    commands=[
        CommandEntry(
            "drift",
            "bot.features.drift.commands:drift_commands",
            "Show what changed outside Keyturn since Keyturn set it, and decide what to do.",
            section="Runs",
        )
    ],
    load_pages=_load_pages,
    load_routes=_load_routes,
    load_chat=_load_chat,
    load_metrics=_load_metrics,
    load_digest=_load_digest,
)
