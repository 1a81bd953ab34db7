"""Rebuild: request on a new host what Keyturn has set on another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.cli.sections import AddedCommand
    from bot.web.pages import Pages


def _load_commands() -> "Sequence[AddedCommand]":
    from bot.cli.sections import AddedCommand
    from bot.features.rebuild.commands import rebuild_host

    return [AddedCommand(rebuild_host, section="Requests")]


def _load_pages() -> "Sequence[Pages]":
    from bot.features.rebuild.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.rebuild.routes import router

    return [router]


FEATURE = Feature(
    "rebuild", load_commands=_load_commands, load_pages=_load_pages, load_routes=_load_routes
)
