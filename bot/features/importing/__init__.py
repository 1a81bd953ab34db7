"""Make drafts of declared runbooks from the job files of other tools.

`sources.py` reads a file as data with the line of each value. `rundeck.py`, `semaphore.py` and
`ansible/` understand what it says, and `shell/` the lines in it. `kinds/` turns a step into a
typed one, `pages.py` collects those of one job, and `drafts.py` writes the pages.
"""

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

FEATURE = Feature(
    "importing",
    commands=[
        CommandEntry(
            "import",
            "bot.features.importing.commands:import_commands",
            "Make drafts of runbooks from jobs of Rundeck, Ansible, AWX and Semaphore.",
            section="Runbooks",
        )
    ],
)
