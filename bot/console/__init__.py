"""A Slack-shaped server for a machine without Slack."""

from bot.console.console import Console
from bot.console.deliveries import Deliver, to_app, to_url
from bot.console.directory import (
    ConsoleChannel,
    ConsoleCommand,
    ConsoleGroup,
    ConsolePerson,
    ConsoleShortcut,
    Installation,
)

__all__ = [
    "Console",
    "ConsoleChannel",
    "ConsoleCommand",
    "ConsoleGroup",
    "ConsolePerson",
    "ConsoleShortcut",
    "Deliver",
    "Installation",
    "to_app",
    "to_url",
]
