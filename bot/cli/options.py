"""Options that many commands share, under the same names and with the same help."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.cli.context import ACTING_PERSON_ADVICE, JSON_WANTED, pass_environment_only

if TYPE_CHECKING:
    from click.core import Context

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class OptionWithAliases(click.Option):
    """An option with older long names, which still work and are not shown in help or errors."""

    def get_help_record(self, ctx: "Context") -> tuple[str, str] | None:
        shown = copy.copy(self)
        shown.opts = self._list_shown_names()
        return click.Option.get_help_record(shown, ctx)

    def get_error_hint(self, ctx: "Context | None") -> str:  # noqa: ARG002 - as click calls it
        return " / ".join(f"'{name}'" for name in self._list_shown_names())

    def _list_shown_names(self) -> list[str]:
        """Return the short name and the first long one."""
        long_names = [name for name in self.opts if name.startswith("--")]
        return [name for name in self.opts if name not in long_names[1:]]


def option_with_aliases(*names: str, **settings: Any) -> Decorator:
    """Return an option of which only the first long name is shown."""
    return click.option(*names, cls=OptionWithAliases, **settings)


def reason_option(
    help_text: str = "Reason, recorded in the change log.", *, required: bool = False
) -> Decorator:
    """Return `--reason`."""
    return option_with_aliases(
        "--reason",
        "--why",
        "reason",
        help=help_text,
        **({"required": True} if required else {"default": ""}),
    )


ticket_option = click.option(
    "--ticket", default="", metavar="KEY", help="Approved change ticket, where a rule needs one."
)


START_AT_OPTION = click.option(
    "--start-at", default="", metavar="TIME", help="Let it start no earlier, such as 22:00."
)


def witness_option(help_text: str) -> Decorator:
    """Return `--witness`, which can be repeated."""
    return click.option(
        "--witness",
        "witnesses",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help=help_text,
    )


def limit_option(default: int, *, minimum: int = 1, help_text: str) -> Decorator:
    """Return `-n`, `--limit`."""
    return option_with_aliases(
        "-n",
        "--limit",
        "--most",
        "limit",
        type=click.IntRange(minimum, 100_000),
        default=default,
        show_default=True,
        help=help_text,
    )


def create_json_option(help_text: str) -> Decorator:
    """Return `--json`. After it, wants_json() returns whether it was given."""

    def keep(context: "Context", _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as click calls it
        context.meta[JSON_WANTED] = value

    return click.option("--json", is_flag=True, expose_value=False, callback=keep, help=help_text)


json_option = create_json_option("Print JSON.")


def pass_environment(command: Callable[..., None]) -> Callable[..., None]:
    """Pass the CommandEnvironment to a command, and add `--json`."""
    return json_option(pass_environment_only(command))


# `--as` says everywhere who acts. On the server, commands believe it; a service checks the token.
ACTING_PERSON_HELP = "Who acts: your id in people.yaml."


class ActingPerson(click.ParamType[str]):
    """Parameter type: the person who acts. A message says what to do if it is missing."""

    name = "person"

    def get_missing_message(self, param: click.Parameter, ctx: "Context | None") -> str:  # noqa: ARG002 - as click calls it
        return ACTING_PERSON_ADVICE


def create_acting_person_option(parameter: str) -> Decorator:
    """Return `--as`, which passes the person under the name of a parameter."""
    return click.option(
        "--as", parameter, required=True, type=ActingPerson(), help=ACTING_PERSON_HELP
    )


acting_person_option = create_acting_person_option("person")
token_owner_option = click.option(
    "--as", "token_owner", default="", help="Who acts: your id; fails if the token is not yours."
)
