"""Change tickets: a run asks its ticket system whether it may start, and leaves notes there.

`systems.py` speaks to each kind of system, `guard.py` asks when a run is planned and before its
first step, `notes.py` writes when it starts and ends. Rules with @ticket and tickets.yaml are a
part of the policy, in `bot/policy/tickets.py`.
"""

from typing import TYPE_CHECKING

from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.tickets.guard import GUARD
    from bot.workflow.hooks import WorkflowHooks

    return WorkflowHooks(guards=[GUARD])


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.tickets.notes import build_server_part

    return build_server_part(context)


FEATURE = Feature("tickets", load_hooks=_load_hooks, build_server_part=_build_server_part)
