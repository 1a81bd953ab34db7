"""A Slack-shaped server for a machine without Slack."""

from tests.slack_emulator.deliveries import Deliver, to_app, to_url
from tests.slack_emulator.directory import (
    EmulatedChannel,
    EmulatedCommand,
    EmulatedGroup,
    EmulatedPerson,
    EmulatedShortcut,
    Installation,
)
from tests.slack_emulator.emulator import Emulator

__all__ = [
    "Deliver",
    "EmulatedChannel",
    "EmulatedCommand",
    "EmulatedGroup",
    "EmulatedPerson",
    "EmulatedShortcut",
    "Emulator",
    "Installation",
    "to_app",
    "to_url",
]
