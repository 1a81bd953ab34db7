"""Open what a command works on: the settings, the installation and its database."""

import os
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.cli.context import FAILED, NOT_FOUND, CommandEnvironment, exit_on_errors, exit_with_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.db.database import Database
    from bot.maintenance.installation import Installation
    from bot.settings import Settings

# Key of the click context under which it is kept whether an author has own runbooks executed that
# are not enabled.
EXECUTES_ALL = "bot.cli.executes_all"

# Heavy modules are loaded by the command that needs them: `keyturn --help` answers at once.


def read_settings() -> "Settings":
    """Return the settings; end with a message that names the setting that is wrong."""
    from pydantic import ValidationError

    from bot.service_address import SETTINGS_FILE, export_library_variables
    from bot.settings import Settings

    if "KEYTURN_SETTINGS" in os.environ and not os.access(SETTINGS_FILE, os.R_OK):
        exit_with_error(
            f"cannot read {SETTINGS_FILE}, which KEYTURN_SETTINGS names: run this as the user of "
            "the service, or name another file",
            FAILED,
        )
    try:
        # Before any client library is loaded: they read proxy and authorities at import.
        export_library_variables()
        settings = Settings()
    except ValidationError as error:
        from bot.model import request_form

        found = error.errors()[0]
        name = "".join(f"KEYTURN_{part}: ".upper() for part in found["loc"])
        exit_with_error(name + request_form.describe_invalid_value(found), FAILED)
    from runbooks import set_enabled_source

    set_enabled_source(_list_enabled_modules)
    return settings


def read_server_settings() -> "Settings":
    """Return the settings; end with a message if others can read or write their file."""
    from bot.service_address import SETTINGS_FILE
    from bot.settings import list_secret_files
    from connectors.permissions import find_reader

    settings = read_settings()
    with exit_on_errors():
        for file in (SETTINGS_FILE, *list_secret_files().values()):
            if file.exists() and (problem := find_reader(file)):
                exit_with_error(problem, FAILED)
    return settings


def check_own_runbooks(settings: "Settings") -> None:
    """End with a message if a file of the installation's own runbooks cannot be used."""
    if settings.runbooks is not None:
        from runbooks import read_own_files

        read_own_files()


def _list_enabled_modules(digests: "Mapping[str, str]") -> "Collection[str]":
    """Return which own runbooks are enabled; none where the signed log cannot be checked.

    If their author asked, all are on a machine without Keyturn's keys. With the keys, pages are,
    of which nothing is executed.
    """
    settings = read_settings()
    context = click.get_current_context(silent=True)
    is_author = context is not None and bool(context.meta.get(EXECUTES_ALL))
    if not has_signing_key(settings):
        return digests if is_author else ()
    confirmed = _list_confirmed_modules(settings, digests)
    if not is_author:
        return confirmed
    from runbooks import read_own_files

    return {*confirmed, *(file.module for file in read_own_files() if file.page)}


def _list_confirmed_modules(
    settings: "Settings", digests: "Mapping[str, str]"
) -> "Collection[str]":
    from bot.db.database import Database, StoreUnavailable
    from bot.model import signing
    from bot.queries.own_runbooks import list_enabled_modules

    if not ENVIRONMENT.has_database():
        return ()
    try:
        key = signing.load_signing_key(settings.key_directory / "changelog.key")
        with (
            closing(Database(settings.database_url, key)) as database,
            database.transaction() as tx,
        ):
            return list_enabled_modules(tx, digests)
    except (StoreUnavailable, signing.KeyFileError):
        return ()


def has_signing_key(settings: "Settings") -> bool:
    """Return whether this machine has Keyturn's keys."""
    return (settings.key_directory / "changelog.key").exists()


def read_installation() -> "Installation":
    """Return the installation that the settings describe, for the doctor."""
    given = read_settings()
    from bot.maintenance.installation import Installation
    from bot.model.redaction import Redactor
    from bot.model.verifier_keys import parse_witnesses
    from bot.service_address import SETTINGS_FILE
    from bot.settings import find_misspelt_settings, list_secret_files

    return Installation(
        data=given.data,
        policy=given.policy,
        keys=given.key_directory,
        database=given.database_url,
        distributed=given.engine == "distributed",
        redactor=Redactor(given.secrets),
        base_url=given.base_url.rstrip("/"),
        witness=given.witness,
        witnesses=parse_witnesses(given.witnesses),
        slack_api=given.slack_api,
        slack_bot_token=given.slack_bot_token.get_secret_value(),
        slack_app_token=given.slack_app_token.get_secret_value(),
        slack_signing_secret=given.slack_signing_secret.get_secret_value(),
        slack_team=given.slack_team,
        slack_channel=given.slack_channel,
        slack_alarm_channel=given.slack_alarm_channel,
        misspelt_settings=find_misspelt_settings(),
        settings_file=SETTINGS_FILE,
        secret_files=list_secret_files(),
        authorities=os.environ.get("SSL_CERT_FILE", ""),
    )


@contextmanager
def open_database(other_url: str = "", *, allow_missing: bool = False) -> "Generator[Database]":
    """Open the database, report expected errors as exit_on_errors(), and close it at the end.

    Args:
        other_url: Address of another database, or of the same for another role.
        allow_missing: Whether the file of the database may be absent.
    """
    from bot.db.database import Database
    from bot.model import signing
    from bot.model.redaction import Redactor

    settings = read_settings()
    with exit_on_errors():
        key = settings.key_directory / "changelog.key"
        signing_key = signing.load_signing_key(key) if key.exists() else None
        database = Database(
            other_url or settings.database_url, signing_key, Redactor(settings.secrets)
        )
        file = Path(database.engine.url.database or "")
        if database.embedded and not (allow_missing or file.exists()):
            exit_with_error(
                f"no database in {file.parent.absolute()}: run this on the server, where `keyturn "
                "serve` creates it, and set KEYTURN_DATA if it is elsewhere",
                NOT_FOUND,
            )
        try:
            if signing_key is not None and not (other_url or allow_missing):
                _open_empty_log(database)
            yield database
        finally:
            database.close()


def _open_empty_log(database: "Database") -> None:
    """Record the signing key in an empty change log, before a command appends to it."""
    from bot.audit import change_log as log
    from bot.audit import verification
    from bot.db import migrations

    if not migrations.is_schema_current(database):
        return
    with database.reading() as tx:
        has_entries = log.get_head(tx)[0] > 0
    if not has_entries:
        with database.transaction() as tx:
            verification.open_log(tx)


ENVIRONMENT = CommandEnvironment(read_settings, open_database)
