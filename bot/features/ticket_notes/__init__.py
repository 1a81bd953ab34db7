"""Notes in the change ticket of a run, when it starts and when it ends.

Whether a ticket permits a change is a question of plan and gate, and so of the core.
"""

from bot.feature import Feature, ServerContext, ServerPart


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.ticket_notes.sender import build_server_part

    return build_server_part(context)


FEATURE = Feature("ticket_notes", build_server_part=_build_server_part)
