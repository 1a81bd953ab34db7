"""Set up: what a new installation lacks, in order, until its first approved change.

`rows.py` asks the database once, `steps.py` turns facts into steps, which the page, Home and
`keyturn doctor` show.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature

if TYPE_CHECKING:
    from bot.health import CheckWithPolicy
    from bot.web.pages import Pages


def _load_pages() -> "Sequence[Pages]":
    from bot.features.setup.pages import PAGES

    return [PAGES]


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.setup.steps import check_setup

    return [check_setup]


FEATURE = Feature("setup", load_pages=_load_pages, load_checks=_load_checks)
