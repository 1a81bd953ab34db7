"""Sections of the help, commands that are imported when used, and the exit on Ctrl-C."""

import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

import click
from click import Command, Context, HelpFormatter, UsageError
from click.exceptions import NoSuchCommand

from bot.cli.command_table import SECTIONS, CommandEntry
from bot.cli.context import (
    FAILED,
    INTERRUPTED,
    JSON_WANTED,
    NOT_UNDERSTOOD,
    end_by_closed_pipe,
    exit_with_error,
)

EXIT_STATUS_HELP = (
    "Exit status: 0 success, 1 failed, 2 invalid input, 3 not found, 4 refused, "
    "5 not ended yet, for example pending approval, 130 interrupted."
)


class CommandGroup(click.Group):
    """A group whose help lists each command with its whole first sentence."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        shown = [
            (name, self.commands[name].get_short_help_str(limit=1000))
            for name in self.list_commands(ctx)
            if not self.commands[name].hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(shown)


def is_text(word: str) -> bool:
    """Return whether Python could decode a word of the command line, so that it can be printed."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


class KeyturnCommand(CommandGroup):
    """The command `keyturn`. It imports a command when that is used, and lists it without.

    sections: its commands by subject, in the order of the help.
    """

    def __init__(self, *args: Any, added: Sequence[CommandEntry] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self._added = added
        # The sections that only features have come before those of who runs the server.
        *daily, backup, server = SECTIONS
        new = (one.section for one in added if one.section and one.section not in SECTIONS)
        titles = dict.fromkeys([*daily, *new, backup, server])
        self.sections = {
            title: [*SECTIONS.get(title, ()), *(one for one in added if one.section == title)]
            for title in titles
        }
        self._entries = {one.name: one for each in self.sections.values() for one in each}

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 - as click calls it
        return sorted(self._entries)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import the command, and those that features add to it."""
        if cmd_name in self._entries and cmd_name not in self.commands:
            command = _import_command(self._entries[cmd_name])
            for one in self._added:
                if one.group == cmd_name:
                    cast("click.Group", command).add_command(_import_command(one), one.name)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Accept `help`, `help COMMAND` and `help RUNBOOK`, as chat does."""
        ctx.meta[JSON_WANTED] = "--json" in args
        for place, word in enumerate(args, start=1):
            if not is_text(word):
                exit_with_error(
                    f"word {place} of the command line is not UTF-8: {ascii(word)[:60]}",
                    NOT_UNDERSTOOD,
                )
        if args[:1] == ["help"]:
            topic = args[1:]
            is_runbook = topic and topic[0] not in self._entries
            args = ["runbooks", *topic] if is_runbook else [*topic, "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the command; for a runbook without `request`, say how to request it."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            from runbooks import list_pending_words, load_catalogue

            # Reads the settings, which name the directory of your own runbooks.
            ctx.obj.read_settings()
            known = (*load_catalogue(), *list_pending_words())
            if any(words.split()[0] == args[0] for words in known):
                command = shlex.join(word for word in args if not word.startswith("-"))
                message = f"{args[0]!r} is a runbook. Request it with: keyturn request {command}"
                raise UsageError(message, ctx) from error
            # click would look for a similar name among the commands that are imported already.
            if isinstance(error, NoSuchCommand):
                raise NoSuchCommand(args[0], possibilities=self._entries, ctx=ctx) from error
            raise

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(one.name, one.summary) for one in entries])

    def invoke(self, ctx: Context) -> Any:
        """Run the command. Ctrl-C ends it with the status that shells expect."""
        try:
            return super().invoke(ctx)
        except ValueError as error:
            from runbooks import OwnRunbookError

            # Your own runbooks are loaded when a command first needs a runbook.
            if isinstance(error, OwnRunbookError):
                exit_with_error(str(error), FAILED)
            if isinstance(error, UnicodeError):
                exit_with_error("the input is not UTF-8 text: save it as UTF-8", NOT_UNDERSTOOD)
            raise
        except KeyboardInterrupt:
            click.echo(err=True)
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            end_by_closed_pipe()

    def main(self, *args: Any, **more: Any) -> NoReturn:
        """Run the command line and exit, with one line for each error of its words."""
        try:
            # Without the standalone mode, click raises its errors instead of printing them, and
            # returns the status with which a command such as `--help` ended.
            sys.exit(super().main(*args, **more, standalone_mode=False))
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            exit_with_click_error(error)
        except click.Abort:
            click.echo("Aborted!", err=True)
            sys.exit(FAILED)
        except KeyboardInterrupt:  # during shell completion
            sys.exit(INTERRUPTED)


def _import_command(entry: CommandEntry) -> Command:
    module, _, name = entry.target.partition(":")
    return getattr(import_module(module), name)


def exit_with_click_error(error: click.ClickException) -> NoReturn:
    """Print an error of click on one line, with the command that prints the help, and exit."""
    message = " ".join(error.format_message().split())
    context = error.ctx if isinstance(error, UsageError) else None
    if context is None:
        exit_with_error(message, error.exit_code)
    # For exit_with_error(), which looks for --json in it.
    with context.scope(cleanup=False):
        exit_with_error(f"{message} (help: {context.command_path} --help)", error.exit_code)
