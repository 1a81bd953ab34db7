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
    from bot.db.database import Database

# Exit statuses that scripts can tell apart. 2 is also click's own, and 130 that of shells.
FAILED, NOT_UNDERSTOOD, NOT_FOUND, REFUSED, WAITING, INTERRUPTED = 1, 2, 3, 4, 5, 130


@dataclass(frozen=True)
class Place:
    """Each is looked up only by a command that needs it.

    policy: the policy directory. database: opens the database, or that at another address, in the
    name of another role. has_database: whether there is one yet. data: the data directory; keys:
    that of the keys. address: of the web pages, without a slash at its end; "" if they have none.
    migrations: the database's address for a role that may change its schema; "" if it is the usual
    one. hooks: the file of hooks, if there is one. service: where it is reached from here.
    witness: the file that checkpoints of the change log are added to, if there is one.
    """

    policy: Callable[[], Path]
    database: "Callable[..., AbstractContextManager[Database]]"
    has_database: Callable[[], bool]
    data: Callable[[], Path]
    keys: Callable[[], Path]
    address: Callable[[], str]
    migrations: Callable[[], str]
    hooks: Callable[[], Path | None] = lambda: None
    service: Callable[[], str] = lambda: ""
    witness: Callable[[], Path | None] = lambda: None


at_place = click.make_pass_decorator(Place)


class Number(click.IntRange):
    """The number of a run, a schedule or whatever else the database counts."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(1, 2_147_483_647)


@contextmanager
def plainly() -> Generator[None]:
    """Turn what a person can do something about into one line on standard error."""
    from bot.audit.signing import KeyFileError
    from bot.db.database import AlreadyRunning, StoreUnavailable
    from bot.model.request_form import NotUnderstood
    from bot.model.text import escape_to_one_line
    from bot.model.times import NotATime
    from bot.policy import NoPolicy

    try:
        yield
    except BrokenPipeError:
        # Whoever read along has seen enough. Python would say so once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (NotUnderstood, NotATime) as trouble:
        stop(escape_to_one_line(str(trouble)), NOT_UNDERSTOOD)
    except (StoreUnavailable, AlreadyRunning, NoPolicy, KeyFileError, ValueError) as trouble:
        stop(escape_to_one_line(str(trouble)), FAILED)
    except OSError as trouble:
        told = trouble.filename and trouble.strerror
        stop(
            escape_to_one_line(
                f"{trouble.filename}: {trouble.strerror}" if told else str(trouble)
            ),
            FAILED,
        )


@contextmanager
def considered() -> Generator[None]:
    """Turn each no of the workflow into one line and the status that tells its kind."""
    from bot.db.runs import NoSuchRun, Overtaken
    from bot.db.schedules import NoSuchSchedule
    from bot.model.schedule import ScheduleError
    from bot.workflow.approvals import NotAllowed, TooLate
    from bot.workflow.requests import InvalidRequest, NoSuchPerson

    try:
        yield
    except NoSuchPerson as missing:
        stop(str(missing), NOT_FOUND)
    except (ScheduleError, InvalidRequest) as strange:
        stop(str(strange), NOT_UNDERSTOOD)
    except (NoSuchRun, NoSuchSchedule) as missing:
        stop(str(missing), NOT_FOUND)
    except NotAllowed as refused:
        stop(str(refused), REFUSED)
    except (TooLate, Overtaken) as late:
        stop(str(late), FAILED)


def stop(message: str, status: int) -> NoReturn:
    """Say why it goes no further."""
    click.echo(f"keyturn: {message}", err=True)
    sys.exit(status)
