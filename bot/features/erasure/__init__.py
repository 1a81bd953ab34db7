"""Erase the output of a run for good: one person requests it, an owner of the area confirms."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages


def _load_pages() -> "Sequence[Pages]":
    from bot.features.erasure.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.erasure.routes import router

    return [router]


def _load_chat() -> "ChatFeatures":
    from bot.features.erasure.notices import build_declined_erasure
    from bot.slack.features import ChatFeatures

    return ChatFeatures(notices=[build_declined_erasure])


FEATURE = Feature(
    "erasure",
    commands=[
        CommandEntry(
            "erase",
            "bot.features.erasure.commands:request_erasure",
            "Request the permanent erasure of the output of RUN.",
            group="changelog",
        )
    ],
    load_pages=_load_pages,
    load_routes=_load_routes,
    load_chat=_load_chat,
)
