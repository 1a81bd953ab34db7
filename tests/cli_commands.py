"""The commands of a group of the command line, which are imported as they are used."""

from collections.abc import Mapping

import click


def load_commands(group: click.Group) -> Mapping[str, click.Command]:
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}
