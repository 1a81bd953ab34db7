"""Sections of the help, older command names, and the exit on Ctrl-C."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import click
from click import Command, Context, HelpFormatter, UsageError

from bot.cli.context import (
    FAILED,
    INTERRUPTED,
    JSON_WANTED,
    NOT_UNDERSTOOD,
    end_by_closed_pipe,
    exit_with_error,
)

# Every command of the core once, by subject.
_SECTIONS: Mapping[str, Sequence[str]] = {
    "Requests": (
        *("request", "plan", "submit", "replan", "again"),
        *("undo", "withdraw"),
    ),
    "Decisions": (
        *("pending", "approve", "sign", "deny", "counter", "accept"),
        *("question", "answer", "reassign"),
    ),
    "Runs": ("runs", "run", "changed", "views"),
    "Runbooks": ("runbooks", "runbook"),
    "Inventory and policy": ("hosts", "locks", "policy"),
    "Schedules": ("freeze",),
    "Emergency": ("stop", "resume", "break-glass", "review", "ban", "unban"),
    "Access": ("sign-in", "delegate", "grant", "grants", "factors", "token"),
    "Agents": ("agent",),
    "Change log": ("changelog",),
    "Backup and database": ("backup", "restore", "db"),
    "Server": (
        *("init", "inventory", "sudoers", "host-files", "signing-page", "manifest"),
        *("doctor", "serve", "worker", "completion"),
    ),
}
EXIT_STATUS_HELP = (
    "Exit status: 0 success, 1 failed, 2 invalid input, 3 not found, 4 refused, "
    "5 not ended yet, for example pending approval, 130 interrupted."
)
# Older names, which still work and are not listed.
ALIASES: Mapping[str, str] = {"ask": "request", "waiting": "pending", "hooks": "webhooks"}


@dataclass(frozen=True)
class AddedCommand:
    """A command of a feature: in a section of `keyturn --help`, or in a group of the core."""

    command: Command
    section: str = ""
    group: str = ""


class CommandGroup(click.Group):
    """A group whose help lists each command with its whole first sentence."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        self.write_section(formatter, "Commands", self.list_commands(ctx))

    def write_section(self, formatter: HelpFormatter, title: str, names: Iterable[str]) -> None:
        shown = [
            (name, self.commands[name].get_short_help_str(limit=1000))
            for name in names
            if not self.commands[name].hidden
        ]
        with formatter.section(title):
            formatter.write_dl(shown)


def is_text(word: str) -> bool:
    """Return whether Python could decode a word of the command line, so that it can be printed."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


class KeyturnCommand(CommandGroup):
    """The command `keyturn`.

    sections: the names of its commands, by subject.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = {title: [*names] for title, names in _SECTIONS.items()}

    def add_feature(self, added: AddedCommand) -> None:
        """Add a command of a feature."""
        if added.group:
            cast("click.Group", self.commands[added.group]).add_command(added.command)
        else:
            self.add_command(added.command)
            self.sections[added.section].append(added.command.name or "")

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
            is_runbook = topic and topic[0] not in {*self.commands, *ALIASES}
            args = ["runbooks", *topic] if is_runbook else [*topic, "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the command; for a runbook without `request`, say how to request it."""
        try:
            return super().resolve_command(ctx, [ALIASES.get(args[0], args[0]), *args[1:]])
        except UsageError as error:
            from runbooks import list_pending_words, load_catalogue

            # Reads the settings, which name the directory of your own runbooks.
            ctx.obj.read_settings()
            known = (*load_catalogue(), *list_pending_words())
            if any(words.split()[0] == args[0] for words in known):
                command = shlex.join(word for word in args if not word.startswith("-"))
                message = f"{args[0]!r} is a runbook. Request it with: keyturn request {command}"
                raise UsageError(message, ctx) from error
            raise

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        for title, names in self.sections.items():
            self.write_section(formatter, title, names)

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


def exit_with_click_error(error: click.ClickException) -> NoReturn:
    """Print an error of click on one line, with the command that prints the help, and exit."""
    message = " ".join(error.format_message().split())
    context = error.ctx if isinstance(error, UsageError) else None
    if context is None:
        exit_with_error(message, error.exit_code)
    # For exit_with_error(), which looks for --json in it.
    with context.scope(cleanup=False):
        exit_with_error(f"{message} (help: {context.command_path} --help)", error.exit_code)
