"""Databases of released versions, as SQL: their schema, and a few runs with their signed log.

`python -m tests.bot.maintenance.released` writes that of the version that is about to be
released. Once it is, its file stays as it is, and a change of the schema needs a new migration.
"""

import sqlite3
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.audit import verification
from bot.db import migrations
from bot.db.database import Database
from bot.model.signing import SigningKey
from tests.bot.harness import open_harness
from tests.toy import SetSwitch, ShowSwitches

RELEASES = Path(__file__).with_name("releases")
# No secret: nothing else is signed with it.
KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(b"\7" * 32))


def open_release(file: Path, directory: Path) -> Database:
    """Return the database of a release, as it was."""
    target = directory / "keyturn.db"
    target.touch(mode=0o600)
    with closing(sqlite3.connect(target)) as connection:
        connection.executescript(file.read_text())
    return Database(f"sqlite:///{target}", KEY)


def dump_database(directory: Path) -> str:
    """Make a database with a check, an approved change and an open request; return its SQL."""
    file = directory / "release.db"
    database = Database(f"sqlite:///{file}", KEY)
    migrations.upgrade_schema(database)
    with database.transaction() as tx:
        verification.open_log(tx)
    with open_harness(directory, database=database) as harness:
        harness.request(ShowSwitches(host="lb1"))
        harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
        harness.request(SetSwitch(host="lb2", name="lamp", value="on"), reason="it is dark")
    with closing(sqlite3.connect(file)) as connection:
        return "\n".join(connection.iterdump()) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        (RELEASES / f"{version('keyturn')}.sql").write_text(dump_database(Path(place)))
