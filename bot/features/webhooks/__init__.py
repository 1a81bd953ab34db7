"""Webhooks: events of other systems in, and events of runs out.

`config.py` reads the file that KEYTURN_HOOKS names, `receiver.py` records what comes in, in the
formats of `formats.py`, and `server.py` sends what subscriptions want.
"""

from bot.cli.command_table import CommandEntry
from bot.feature import Feature, ServerContext, ServerPart


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.webhooks.server import build_server_part

    return build_server_part(context)


FEATURE = Feature(
    "webhooks",
    commands=[
        CommandEntry(
            "webhooks",
            "bot.features.webhooks.commands:show_webhooks",
            "Show incoming and outgoing webhooks, and how to set them up.",
            section="Other systems",
        )
    ],
    build_server_part=_build_server_part,
)
