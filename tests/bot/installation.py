"""A directory with the files of an installation, for tests of commands."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bot.audit import verification
from bot.auth import secret_box
from bot.db.database import Transaction
from bot.model import signing
from tests.bot.databases import create_sqlite_database
from tests.policies import write_policy


@contextmanager
def create_installation(directory: Path) -> Generator[Transaction]:
    """Create a policy, keys and a database, and yield the transaction that opens the log."""
    write_policy(directory / "policy")
    var = directory / "var"
    var.mkdir()
    secret_box.load_secret_box(var / "secrets.key")
    database = create_sqlite_database(
        var / "keyturn.db", signing.load_signing_key(var / "changelog.key")
    )
    with database.transaction() as tx:
        verification.open_log(tx)
        yield tx
    database.close()
