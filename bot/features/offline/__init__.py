"""Change enrolled hosts while Keyturn is down, and log afterwards what people did.

`plan_file.py` is the file that goes from person to person, `workspace.py` what a command works
with instead of a service, `actions.py` what commands do, and `reader.py` what Keyturn reads of
hosts when it is back.
"""

from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

if TYPE_CHECKING:
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.offline.reader import build_duties
    from bot.workflow.hooks import WorkflowHooks

    return WorkflowHooks(build_host_duties=[build_duties])


FEATURE = Feature(
    "offline",
    commands=[
        CommandEntry(
            "offline",
            "bot.features.offline.commands:offline_commands",
            "Change an enrolled host while Keyturn is down, with two signatures.",
            section="Emergency",
        )
    ],
    load_hooks=_load_hooks,
)
