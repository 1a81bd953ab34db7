"""The place where a command works, and how it speaks of what a person can do something about."""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from bot.store.database import Database

# Exit statuses that scripts can tell apart; 2 is click's own for words it does not understand.
FAILED, NOT_FOUND = 1, 3


@dataclass(frozen=True)
class Place:
    """Each is looked up only by a command that needs it.

    policy: the policy directory. database: opens the database, or that at another address, in the
    name of another role. has_database: whether there is one yet. data: the data directory; keys:
    that of the keys. address: of the web pages, without a slash at its end; "" if they have none.
    migrations: the database's address for a role that may change its schema; "" if it is the usual
    one. hooks: the file of hooks, if there is one.
    """

    policy: Callable[[], Path]
    database: "Callable[..., AbstractContextManager[Database]]"
    has_database: Callable[[], bool]
    data: Callable[[], Path]
    keys: Callable[[], Path]
    address: Callable[[], str]
    migrations: Callable[[], str]
    hooks: Callable[[], Path | None] = lambda: None


at_place = click.make_pass_decorator(Place)


@contextmanager
def plainly() -> Generator[None]:
    """Turn what a person can do something about into one line on standard error."""
    from bot.forms import NotUnderstood
    from bot.policy import NoPolicy
    from bot.store.database import AlreadyRunning, StoreUnavailable
    from bot.store.seal import BadKey
    from bot.visible import one_line

    try:
        yield
    except BrokenPipeError:
        # Whoever read along has seen enough. Python would say so once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except NotUnderstood as trouble:
        stop(one_line(str(trouble)), NOT_FOUND)
    except (StoreUnavailable, AlreadyRunning, NoPolicy, BadKey, OSError, ValueError) as trouble:
        stop(one_line(str(trouble)), FAILED)


def stop(message: str, status: int) -> NoReturn:
    """Say why it goes no further."""
    click.echo(f"keyturn: {message}", err=True)
    sys.exit(status)
