"""A directory laid out as an installation's, for commands that are typed there."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bot.audit import verification
from bot.auth import secret_box
from bot.db.database import Transaction
from bot.model import signing
from tests.bot.empty import empty
from tests.policies import a_policy


@contextmanager
def a_place(directory: Path) -> Generator[Transaction]:
    """Lay out a policy, keys and a log there, and hold the transaction that opens the log."""
    a_policy(directory / "policy")
    var = directory / "var"
    var.mkdir()
    secret_box.load_secret_box(var / "secrets.key")
    database = empty(var / "keyturn.db", signing.load_signing_key(var / "changelog.key"))
    with database.transaction() as tx:
        verification.open_log(tx)
        yield tx
    database.close()
