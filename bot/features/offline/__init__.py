"""Change enrolled hosts while Keyturn is down, and log afterwards what people did.

`plan_file.py` is the file that goes from person to person, `workspace.py` what a command works
with instead of a service, `actions.py` what commands do, and `reader.py` what Keyturn reads of
hosts when it is back.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature

if TYPE_CHECKING:
    from bot.cli.sections import AddedCommand
    from bot.workflow.hooks import WorkflowHooks


def _load_commands() -> "Sequence[AddedCommand]":
    from bot.cli.sections import AddedCommand
    from bot.features.offline.commands import offline_commands

    return [AddedCommand(offline_commands, section="Emergency")]


def _load_hooks() -> "WorkflowHooks":
    from bot.features.offline.reader import build_duties
    from bot.workflow.hooks import WorkflowHooks

    return WorkflowHooks(build_host_duties=[build_duties])


FEATURE = Feature("offline", load_commands=_load_commands, load_hooks=_load_hooks)
