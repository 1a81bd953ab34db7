"""Webhooks: events of other systems in, and events of runs out.

`config.py` reads the file that KEYTURN_HOOKS names, `receiver.py` records what comes in, in the
formats of `formats.py`, and `server.py` sends what subscriptions want.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from bot.cli.sections import AddedCommand


def _load_commands() -> "Sequence[AddedCommand]":
    from bot.cli.sections import AddedCommand
    from bot.features.webhooks.commands import show_webhooks

    return [AddedCommand(show_webhooks, section="Access")]


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.webhooks.server import build_server_part

    return build_server_part(context)


FEATURE = Feature("webhooks", load_commands=_load_commands, build_server_part=_build_server_part)
