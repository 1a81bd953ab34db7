"""What commands work with, and how they report errors and exit."""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from bot.db.database import Database
    from bot.model.run import Run
    from bot.service import KeyturnService, WorkflowHooks
    from bot.settings import Settings

# Exit statuses for scripts. 2 is also click's own, and 130 is what shells expect for Ctrl-C.
FAILED, NOT_UNDERSTOOD, NOT_FOUND, REFUSED, WAITING, INTERRUPTED = 1, 2, 3, 4, 5, 130

# The exit status of errors by their HTTP status; of any other, FAILED.
_EXIT_STATUSES = {400: NOT_UNDERSTOOD, 422: NOT_UNDERSTOOD, 401: REFUSED, 403: REFUSED}

# What to do, and where, if `--as` is missing or names an unknown person.
ACTING_PERSON_ADVICE = "Run this on the server with --as PERSON, your id in people.yaml"

# Key of the click context under which it is kept whether the command line has --json.
JSON_WANTED = "bot.cli.json"


@dataclass(frozen=True)
class CommandEnvironment:
    """The installation, read only as far as a command needs it."""

    read_settings: "Callable[[], Settings]"
    open_database: "Callable[..., AbstractContextManager[Database]]"
    """Opens the database of the settings, or another, and reports errors as exit_on_errors()."""
    load_hooks: "Callable[[], WorkflowHooks] | None" = None
    """Returns what features do on the way of a run."""

    @property
    def settings(self) -> "Settings":
        """The settings; a wrong one ends the command."""
        return self.read_settings()

    @property
    def base_url(self) -> str:
        """Address of the web pages, without a slash at its end; "" if they have none."""
        return self.settings.base_url.rstrip("/")

    def has_database(self) -> bool:
        settings = self.settings
        return bool(settings.database) or (settings.data / "keyturn.db").exists()


# For commands without --json; `pass_environment` of bot.cli.options is for all others.
pass_environment_only = click.make_pass_decorator(CommandEnvironment)


class RecordNumber(click.IntRange):
    """Parameter type: the number of a run, a schedule or another record."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(1, 2_147_483_647)


@contextmanager
def exit_on_errors() -> Generator[None]:
    """Report expected errors as one line on standard error, and exit."""
    from connectors.errors import DomainError

    try:
        yield
    except BrokenPipeError:
        end_by_closed_pipe()
    except DomainError as error:
        exit_with_error(str(error), get_exit_status(error.status, error.code))
    except UnicodeError:
        exit_with_error("the input is not UTF-8 text: save it as UTF-8", NOT_UNDERSTOOD)
    except ValueError as error:
        exit_with_error(str(error), FAILED)
    except OSError as error:
        has_file = error.filename and error.strerror
        message = f"{error.filename}: {error.strerror}" if has_file else str(error)
        fix = ": use a login that has access to it" if isinstance(error, PermissionError) else ""
        exit_with_error(message + fix, FAILED)


def end_by_closed_pipe() -> NoReturn:
    """End as other programs do when the reader of their output, such as `head`, has ended."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    sys.exit(FAILED)  # where the signal is blocked


@contextmanager
def open_service(
    environment: CommandEnvironment, acting_person: str = ""
) -> "Generator[KeyturnService]":
    """Open the service on the database alone, and report errors and refusals as one line.

    A running service executes what is requested here.

    Args:
        acting_person: The value of `--as`, which must be a person of the policy; "" for none.
    """
    from bot.policy import PolicyDirectory
    from bot.service import KeyturnService
    from connectors.permissions import list_trusted_owners

    with environment.open_database() as database:
        owners = list_trusted_owners(environment.settings.data)
        policies = PolicyDirectory(environment.settings.policy, owners=owners)
        if acting_person and policies.get_policy().find_person(acting_person) is None:
            message = f"unknown person {acting_person}. {ACTING_PERSON_ADVICE}"
            exit_with_error(message, NOT_FOUND)
        yield KeyturnService.without_execution(
            database, policies, environment.load_hooks() if environment.load_hooks else None
        )


def run_to_data(environment: CommandEnvironment, run: "Run") -> Mapping[str, Any]:
    """Return the fields of a run in the API that are known without the service."""
    from bot.model.references import hide_references
    from bot.model.run_states import describe_outcome

    return {
        "id": run.id,
        "state": run.state.value,
        "ended": run.is_ended,
        "request": run.request,
        "summary": hide_references(describe_outcome(run)),
        "page": f"{environment.base_url}/runs/{run.id}" if environment.base_url else "",
    }


def wants_json() -> bool:
    """Return whether the command line has --json."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(JSON_WANTED))


def is_interactive() -> bool:
    """Return whether a person can be asked: in a terminal, without --json."""
    return sys.stdin.isatty() and not wants_json()


def get_exit_status(http_status: int, code: str) -> int:
    """Return the exit status for an error, from its HTTP status and its code."""
    if code.endswith("not-found"):
        return NOT_FOUND
    return _EXIT_STATUSES.get(http_status, FAILED)


def exit_with_error(message: str, status: int) -> NoReturn:
    """Print the message on one line of standard error, with --json as JSON, and exit."""
    from bot.model.text import escape_to_one_line

    message = escape_to_one_line(message)
    if wants_json():
        click.echo(json.dumps({"error": message, "status": status}, ensure_ascii=False), err=True)
    else:
        click.echo(f"keyturn: {message}", err=True)
    sys.exit(status)
