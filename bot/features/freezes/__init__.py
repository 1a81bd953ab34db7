"""Freezes: people see those of the policy, and order one by command until a time.

`rows.py` keeps those that people ordered, `facts.py` adds them to the policy, so that forms, cards
and the gate need not know where a freeze comes from, and `actions.py` is what people do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.freezes.facts import FACTS
    from bot.workflow.hooks import WorkflowHooks

    return WorkflowHooks(policy_facts=[FACTS])


def _load_pages() -> "Sequence[Pages]":
    from bot.features.freezes.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.freezes.routes import router

    return [router]


def _load_chat() -> "ChatFeatures":
    from bot.features.freezes.chat import CHAT

    return CHAT


FEATURE = Feature(
    "freezes",
    load_hooks=_load_hooks,
    commands=[
        CommandEntry(
            "freeze",
            "bot.features.freezes.commands:freeze_commands",
            "Show freezes, times in which changes are on hold; order one, and end it.",
            section="Emergency",
        )
    ],
    load_pages=_load_pages,
    load_routes=_load_routes,
    load_chat=_load_chat,
)
