"""On call: calendars in iCalendar format say who is on duty, and so has a role.

`reader.py` reads them, `calendar_shifts.py` and `calendar_events.py` expand their events to
shifts, `rows.py` keeps what was read, `duties.py` says who is on duty, and `status.py` what people
see. Rules use it as roles and as `context.oncall`, so the policy itself names the calendars.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from bot.health import CheckWithPolicy
    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.oncall.duties import FACTS
    from bot.workflow.hooks import WorkflowHooks

    return WorkflowHooks(policy_facts=[FACTS])


def _load_pages() -> "Sequence[Pages]":
    from bot.features.oncall.pages import PAGES

    return [PAGES]


def _load_chat() -> "ChatFeatures":
    from bot.features.oncall.handover import list_started_duties
    from bot.slack.features import ChatFeatures

    return ChatFeatures(list_started_duties=[list_started_duties])


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.oncall.status import check_calendars

    return [check_calendars]


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.oncall.reader import CalendarReader

    reader = CalendarReader(context.policies, context.database, context.settings.policy)
    return ServerPart(duties=[reader.read_due_calendars])


FEATURE = Feature(
    "oncall",
    load_hooks=_load_hooks,
    load_pages=_load_pages,
    load_checks=_load_checks,
    load_chat=_load_chat,
    build_server_part=_build_server_part,
)
