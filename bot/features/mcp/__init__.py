"""The Model Context Protocol, by which agents make requests: the address /mcp, and its bridge."""

from bot.cli.command_table import CommandEntry
from bot.feature import Feature, ServerContext, ServerPart


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.mcp.server import build_server_part

    return build_server_part(context)


FEATURE = Feature(
    "mcp",
    commands=[
        CommandEntry(
            "mcp",
            "bot.features.mcp.commands:bridge_mcp",
            "Connect a program that speaks MCP over standard input and output to /mcp.",
            section="Agents",
        )
    ],
    build_server_part=_build_server_part,
)
