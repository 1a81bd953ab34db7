"""See what the page of a declared runbook becomes while it is written: nothing is stored."""

from typing import TYPE_CHECKING

from bot.feature import Feature

if TYPE_CHECKING:
    from bot.web.pages import Pages


def _load_pages() -> "list[Pages]":
    from bot.features.runbook_preview.pages import PAGES

    return [PAGES]


FEATURE = Feature("runbook_preview", load_pages=_load_pages)
