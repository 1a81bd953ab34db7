"""The features of Keyturn, a folder and a line each, and what they add together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature
from bot.features import erasure, wait_report

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.cli.sections import AddedCommand
    from bot.maintenance.digest import DigestSection
    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages

FEATURES: Sequence[Feature] = (
    erasure.FEATURE,
    wait_report.FEATURE,
)


def load_commands() -> "Sequence[AddedCommand]":
    return [command for one in FEATURES for command in one.load_commands()]


def load_pages() -> "Sequence[Pages]":
    return [pages for one in FEATURES for pages in one.load_pages()]


def load_routes() -> "Sequence[APIRouter]":
    return [router for one in FEATURES for router in one.load_routes()]


def load_chat() -> "ChatFeatures":
    from bot.slack.features import ChatFeatures

    return ChatFeatures([build for one in FEATURES for build in one.load_notices()])


def load_digest() -> "Sequence[DigestSection]":
    return [section for one in FEATURES for section in one.load_digest()]
