"""How long requests wait for approval, what could be self-service, and the replay of a policy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.queries.digest import BuildDigest
    from bot.web.pages import Pages


def _load_pages() -> "Sequence[Pages]":
    from bot.features.wait_report.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.wait_report.routes import router

    return [router]


def _load_digest() -> "Sequence[BuildDigest]":
    from bot.features.wait_report.report import build_digest

    return [build_digest]


FEATURE = Feature(
    "wait_report",
    commands=[
        CommandEntry(
            "report",
            "bot.features.wait_report.commands:report_commands",
            "Show reports on the use of Keyturn.",
            section="Inventory and policy",
        ),
        CommandEntry(
            "replay",
            "bot.features.wait_report.commands:replay_history",
            "Evaluate past requests by the policy in NEW_DIR, and show what would differ.",
            group="policy",
        ),
    ],
    load_pages=_load_pages,
    load_routes=_load_routes,
    load_digest=_load_digest,
)
