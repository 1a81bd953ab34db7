"""A witness of change logs, for another machine: `keyturn witness`.

It speaks https://c2sp.org/tlog-witness, so it also cosigns other logs, and other witnesses cosign
ours. `state.py` is what it remembers, `server.py` its two addresses.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.feature import Feature

if TYPE_CHECKING:
    from bot.cli.sections import AddedCommand


def _load_commands() -> "Sequence[AddedCommand]":
    from bot.cli.sections import AddedCommand
    from bot.features.witness.commands import run_witness

    return [AddedCommand(run_witness, section="Change log")]


FEATURE = Feature("witness", load_commands=_load_commands)
