"""The Model Context Protocol, by which agents make requests: the address /mcp, and its bridge.

Needs the extra `keyturn[mcp]`; without it, a server has no such address.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from bot.cli.sections import AddedCommand


def _load_commands() -> "Sequence[AddedCommand]":
    from bot.cli.sections import AddedCommand
    from bot.features.mcp.commands import bridge_mcp

    return [AddedCommand(bridge_mcp, section="Agents")]


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.mcp.server import build_server_part

    return build_server_part(context)


FEATURE = Feature("mcp", load_commands=_load_commands, build_server_part=_build_server_part)
