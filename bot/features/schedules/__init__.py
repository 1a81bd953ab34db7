"""Schedules: approved once, run at their due times; and the calendar of what is due.

What a request for a schedule asks for is part of its run: `bot/model/schedule.py`. `approval.py`
starts it once it is approved and says whether that covers a run, `runner.py` fires what is due,
`rows.py` are the rows of the database, `readings.py` is what people see, and `actions.py` what
they do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.health import CheckWithPolicy
    from bot.queries.digest import BuildDigest, ListEnds
    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.schedules.approval import get_founding_run, start_schedule
    from bot.workflow.hooks import ScheduleHooks, WorkflowHooks

    return WorkflowHooks(schedules=ScheduleHooks(start_schedule, get_founding_run))


def _load_pages() -> "Sequence[Pages]":
    from bot.features.schedules.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.schedules.routes import calendar_router, router

    return [router, calendar_router]


def _load_chat() -> "ChatFeatures":
    from bot.features.schedules.chat import CHAT

    return CHAT


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.schedules.readings import check_schedules

    return [check_schedules]


def _load_digest() -> "Sequence[BuildDigest]":
    from bot.features.schedules.readings import build_digest

    return [build_digest]


def _load_ends() -> "Sequence[ListEnds]":
    from bot.features.schedules.readings import list_ends

    return [list_ends]


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.schedules.runner import ScheduleTimer

    return ServerPart(tasks=[context.service.bind(ScheduleTimer).run_until_cancelled])


FEATURE = Feature(
    "schedules",
    load_hooks=_load_hooks,
    commands=[
        CommandEntry(
            "schedule",
            "bot.features.schedules.commands:schedule_commands",
            "Manage schedules.",
            section="Schedules",
        ),
        CommandEntry(
            "calendar",
            "bot.features.schedules.commands:show_calendar",
            "List due times and freezes of the coming days.",
            section="Schedules",
        ),
    ],
    load_pages=_load_pages,
    load_routes=_load_routes,
    load_chat=_load_chat,
    load_checks=_load_checks,
    load_digest=_load_digest,
    load_ends=_load_ends,
    build_server_part=_build_server_part,
)
