"""`keyturn inventory …`: the words that a person types, and what scripts read of it."""

import json
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

import click

FAILED, NOT_FOUND = 1, 3

# The context's object: asks the settings for the policy directory when a command needs it.
PolicyPath = Callable[[], Path]
T = TypeVar("T")


@click.group()
def inventory() -> None:
    """Look after the hosts: are they well, which are missing?"""


@inventory.command("check")
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def check(policy: PolicyPath, *, hosts: tuple[str, ...], as_json: bool) -> None:
    """Log in everywhere, or on each HOST, and say what stands in the way.

    Changes nothing. Exit status 1 if any host is not well.
    """
    from bot.inventory import drawing
    from bot.inventory.standing import standings
    from bot.policy.directory import load
    from connectors.fleet import Fleet
    from connectors.sessions import Sessions

    with _plainly():
        directory = policy()
        known = load(directory).inventory
        names = [known[name].name for name in dict.fromkeys(hosts)] or list(known.hosts)
    fleet = Fleet(known, Sessions(directory))
    try:
        with _progress(standings(fleet, names), len(names)) as arriving:
            found = {each.host: each for each in arriving}
    finally:
        fleet.close()
    ordered = [found[name] for name in names]
    if as_json:
        click.echo(json.dumps(drawing.as_data(ordered), indent=2, ensure_ascii=False))
    elif not ordered:
        click.echo("the inventory has no hosts yet: `keyturn inventory enroll` adds the first")
    else:
        click.echo(drawing.as_text(ordered))
    sys.exit(0 if all(each.well for each in ordered) else FAILED)


@contextmanager
def _progress(arriving: Iterable[T], length: int) -> Generator[Iterable[T]]:
    """Show a bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield arriving
        return
    with click.progressbar(arriving, length=length, label="asking", file=sys.stderr) as shown:
        yield shown


@contextmanager
def _plainly() -> Generator[None]:
    """Turn what a person can do something about into one line on standard error."""
    from bot.policy import NoPolicy
    from bot.visible import one_line
    from connectors.trouble import HostTrouble, UnknownHost

    try:
        yield
    except UnknownHost as trouble:
        _stop(one_line(str(trouble)), NOT_FOUND)
    except (NoPolicy, HostTrouble, OSError, ValueError) as trouble:
        _stop(one_line(str(trouble)), FAILED)


def _stop(message: str, status: int) -> NoReturn:
    click.echo(f"keyturn: {message}", err=True)
    sys.exit(status)
