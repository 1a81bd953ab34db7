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
class CommandEnvironment:
    """Each is looked up only by a command that needs it.

    policy: the policy directory. database: opens the database, or that at another address, in the
    name of another role. has_database: whether there is one yet. data: the data directory; keys:
    that of the keys. address: of the web pages, without a slash at its end; "" if they have none.
    migrations: the database's address for a role that may change its schema; "" if it is the usual
    one. hooks: the file of hooks, if there is one. service: where it is reached from here.
    witness: the file that checkpoints of the change log are added to, if there is one.
    """

    get_policy_directory: Callable[[], Path]
    open_database: "Callable[..., AbstractContextManager[Database]]"
    has_database: Callable[[], bool]
    get_data_directory: Callable[[], Path]
    get_key_directory: Callable[[], Path]
    get_base_url: Callable[[], str]
    get_migration_url: Callable[[], str]
    get_webhook_file: Callable[[], Path | None] = lambda: None
    get_service_url: Callable[[], str] = lambda: ""
    get_witness_file: Callable[[], Path | None] = lambda: None


pass_environment = click.make_pass_decorator(CommandEnvironment)


class RecordNumber(click.IntRange):
    """The number of a run, a schedule or whatever else the database counts."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(1, 2_147_483_647)


@contextmanager
def exit_on_errors() -> Generator[None]:
    """Turn what a person can do something about into one line on standard error."""
    from bot.db.database import AlreadyRunning, StoreUnavailable
    from bot.model.request_form import RequestSyntaxError
    from bot.model.signing import KeyFileError
    from bot.model.text import escape_to_one_line
    from bot.model.times import InvalidTimeError
    from bot.policy import NoPolicyError

    try:
        yield
    except BrokenPipeError:
        # Whoever read along has seen enough. Python would say so once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (RequestSyntaxError, InvalidTimeError) as trouble:
        exit_with_error(escape_to_one_line(str(trouble)), NOT_UNDERSTOOD)
    except (StoreUnavailable, AlreadyRunning, NoPolicyError, KeyFileError, ValueError) as trouble:
        exit_with_error(escape_to_one_line(str(trouble)), FAILED)
    except OSError as trouble:
        told = trouble.filename and trouble.strerror
        exit_with_error(
            escape_to_one_line(
                f"{trouble.filename}: {trouble.strerror}" if told else str(trouble)
            ),
            FAILED,
        )


@contextmanager
def exit_on_refusals() -> Generator[None]:
    """Turn each no of the workflow into one line and the status that tells its kind."""
    from bot.db.runs import ConcurrentUpdateError, NoSuchRun
    from bot.db.schedules import NoSuchSchedule
    from bot.model.errors import InvalidRequestError, NoSuchPersonError, NotAllowed, TooLate
    from bot.model.schedule import ScheduleError

    try:
        yield
    except NoSuchPersonError as missing:
        exit_with_error(str(missing), NOT_FOUND)
    except (ScheduleError, InvalidRequestError) as strange:
        exit_with_error(str(strange), NOT_UNDERSTOOD)
    except (NoSuchRun, NoSuchSchedule) as missing:
        exit_with_error(str(missing), NOT_FOUND)
    except NotAllowed as refused:
        exit_with_error(str(refused), REFUSED)
    except (TooLate, ConcurrentUpdateError) as late:
        exit_with_error(str(late), FAILED)


def exit_with_error(message: str, status: int) -> NoReturn:
    """Say why it goes no further."""
    click.echo(f"keyturn: {message}", err=True)
    sys.exit(status)
