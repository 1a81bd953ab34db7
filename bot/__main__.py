"""The command line: `keyturn …`."""

from dataclasses import replace

import click

from bot.cli.environment import ENVIRONMENT
from bot.cli.sections import EXIT_STATUS_HELP, KeyturnCommand
from bot.cli.terminal import is_quiet
from bot.features import list_commands, load_hooks


@click.group(
    cls=KeyturnCommand,
    added=list_commands(),
    epilog=EXIT_STATUS_HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "obj": replace(ENVIRONMENT, load_hooks=load_hooks),
    },
)
@click.version_option(package_name="keyturn", prog_name="keyturn")
def main() -> None:
    """Audited runbooks with approvals.

    Settings come from the environment (KEYTURN_…) and the file .env.
    """
    if is_quiet():
        click.get_current_context().color = False


if __name__ == "__main__":
    main()
