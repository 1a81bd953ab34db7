"""Rebuild: request on a new host what Keyturn has set on another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.web.pages import Pages


def _load_pages() -> "Sequence[Pages]":
    from bot.features.rebuild.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.rebuild.routes import router

    return [router]


FEATURE = Feature(
    "rebuild",
    commands=[
        CommandEntry(
            "rebuild",
            "bot.features.rebuild.commands:rebuild_host",
            "Show what Keyturn has set on HOST, and what it does not know.",
            section="Requests",
        )
    ],
    load_pages=_load_pages,
    load_routes=_load_routes,
)
