"""Redundancy: a change that would take the last part of a service down is refused.

The trees are part of the policy, in `bot/policy/trees.py`. `readings.py` reads the legs of
services before a change, `rows.py` keeps what was read, `status.py` says what a change would take
down, `guard.py` decides, and `claims.py` keeps the legs of a run until they stand again.
`drawing.py` draws trees, for pages, chat and terminal.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

if TYPE_CHECKING:
    from bot.health import CheckWithPolicy
    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.redundancy.claims import build_duties, take_claims
    from bot.features.redundancy.readings import prepare, record_check
    from bot.features.redundancy.status import (
        FACTS,
        check_plan,
        list_margin_notes,
        may_start_together,
    )
    from bot.model.run import RefusedBy
    from bot.workflow.hooks import Guard, WorkflowHooks

    guard = Guard(RefusedBy.GUARD, prepare, check_plan, take_claims, may_start_together)
    return WorkflowHooks(
        policy_facts=[FACTS],
        guards=[guard],
        on_run_end=[record_check],
        list_plan_notes=[list_margin_notes],
        build_host_duties=[build_duties],
    )


def _load_pages() -> "Sequence[Pages]":
    from bot.features.redundancy.pages import PAGES

    return [PAGES]


def _load_chat() -> "ChatFeatures":
    from bot.features.redundancy.chat import WORDS
    from bot.slack.features import ChatFeatures

    return ChatFeatures(words=[WORDS])


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.redundancy.status import check_trees

    return [check_trees]


FEATURE = Feature(
    "redundancy",
    load_hooks=_load_hooks,
    commands=[
        CommandEntry(
            "tree",
            "bot.features.redundancy.commands:tree_commands",
            "Show what must fail together before a service is down.",
            section="Inventory and policy",
        )
    ],
    load_pages=_load_pages,
    load_chat=_load_chat,
    load_checks=_load_checks,
)
