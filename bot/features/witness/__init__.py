"""A witness of change logs, for another machine: `keyturn witness`.

It speaks https://c2sp.org/tlog-witness, so it also cosigns other logs, and other witnesses cosign
ours. `state.py` is what it remembers, `server.py` its two addresses.
"""

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

FEATURE = Feature(
    "witness",
    commands=[
        CommandEntry(
            "witness",
            "bot.features.witness.commands:run_witness",
            "Cosign change logs on another machine, until interrupted.",
            section="Change log",
        )
    ],
)
