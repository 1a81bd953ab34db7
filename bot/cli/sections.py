"""How commands are listed, and how Ctrl-C ends any of them."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import click
from click import Command, Context, HelpFormatter, UsageError

from bot.cli.context import FAILED, INTERRUPTED, exit_with_error

# Each command once, beside what it is for.
SECTIONS: Mapping[str, Sequence[str]] = {
    "Ask and decide": (
        *("ask", "again", "runs", "run", "waiting", "approve", "deny", "withdraw", "undo"),
        *("changed", "compare", "views"),
    ),
    "Know what there is": ("runbooks", "hosts", "locks", "policy", "tree", "report"),
    "By the clock": ("schedule", "calendar"),
    "In an emergency": ("stop", "resume", "ban", "unban"),
    "People and programs": ("sign-in", "delegate", "grants", "factors", "token", "hooks"),
    "Keep what was done": ("changelog", "backup", "restore", "db"),
    "Set it up and serve": (
        *("init", "inventory", "sudoers", "manifest", "doctor", "serve", "worker", "completion"),
    ),
}
EXIT_STATUS_HELP = (
    "Exit status: 0 done, 1 failed, 2 not understood, 3 not found, 4 refused, "
    "5 not over yet, such as waiting for people, 130 interrupted."
)


class CommandGroup(click.Group):
    """Commands of one subject, each listed with the whole of its first sentence."""

    @classmethod
    def from_group(cls, group: click.Group) -> Self:
        """Return a group of a layer that cannot know this one, and those in it, listed so."""
        inside = {
            name: cls.from_group(one) if isinstance(one, click.Group) else one
            for name, one in group.commands.items()
        }
        return cls(group.name, commands=inside, help=group.help)

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


class KeyturnCommand(CommandGroup):
    """All of them, by what they are for."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Take `help` as in chat: of all, of a command, or of a runbook."""
        if args[:1] == ["help"]:
            about = args[1:]
            of_runbook = about and about[0] not in self.commands
            args = ["runbooks", *about] if of_runbook else [*about, "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find what was typed; whoever types a runbook as in chat is told how it is asked for."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as unknown:
            from runbooks import load_catalogue

            # The settings are read by that: they say where runbooks of one's own are.
            ctx.obj()
            if any(words.split()[0] == args[0] for words in load_catalogue()):
                typed = shlex.join(word for word in args if not word.startswith("-"))
                told = f"{args[0]!r} is of runbooks, which are asked for: keyturn ask {typed}"
                raise UsageError(told, ctx) from unknown
            raise

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        for title, names in SECTIONS.items():
            self.write_section(formatter, title, names)

    def invoke(self, ctx: Context) -> Any:
        """Do what was typed; by Ctrl-C it ends at once, and as shells expect."""
        try:
            return super().invoke(ctx)
        except ValueError as trouble:
            from runbooks import OwnRunbookError

            # Runbooks of one's own are loaded by whatever first asks for one.
            if isinstance(trouble, OwnRunbookError):
                exit_with_error(str(trouble), FAILED)
            raise
        except KeyboardInterrupt:
            click.echo(err=True)
            sys.exit(INTERRUPTED)

    def main(self, *args: Any, **more: Any) -> Any:
        try:
            return super().main(*args, **more)
        except KeyboardInterrupt:  # while a shell had words completed
            sys.exit(INTERRUPTED)
