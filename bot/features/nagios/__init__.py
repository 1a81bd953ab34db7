"""The health of the service as a plugin of Nagios, Icinga, Naemon or Checkmk sees it."""

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

FEATURE = Feature(
    "nagios",
    commands=[
        CommandEntry(
            "nagios",
            "bot.features.nagios.commands:check_service",
            "Check the health of the service, as a plugin of Nagios or Icinga.",
            section="Other systems",
        )
    ],
)
