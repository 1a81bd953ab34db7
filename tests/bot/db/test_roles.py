"""On PostgreSQL the service's role can only append to the change log and read it."""

from collections.abc import Generator
from dataclasses import dataclass

import psycopg
import pytest
from sqlalchemy import text

from bot.audit import change_log, verification
from bot.audit.event_type import UnknownEvent
from bot.db import migrations
from bot.db import roles as db_roles
from bot.db.database import Database, StoreUnavailable
from bot.model.errors import InvalidRequestError
from bot.model.signing import SigningKey
from tests.bot.databases import create_postgresql_database
from tests.playground.postgres import Postgres

pytestmark = pytest.mark.real

ROLES = ("keyturn_app", "keyturn_reader")
FORBIDDEN = (
    "UPDATE entry SET person = 'adam'",
    "DELETE FROM entry",
    "TRUNCATE entry",
    "DROP TABLE entry CASCADE",
    "ALTER TABLE entry DISABLE TRIGGER ALL",
    "ALTER TABLE entry ADD COLUMN more text",
    "ALTER TABLE entry OWNER TO CURRENT_USER",
    "DROP TRIGGER entry_append_only ON entry",
    "CREATE OR REPLACE FUNCTION entry_is_append_only() RETURNS trigger LANGUAGE plpgsql "
    "AS $$ BEGIN RETURN NEW; END $$",
    "CREATE TRIGGER mine BEFORE INSERT ON entry EXECUTE FUNCTION entry_is_append_only()",
    "CREATE RULE mine AS ON INSERT TO entry DO INSTEAD NOTHING",
    "CREATE TABLE mine (x int)",
    "SET session_replication_role = replica",
    "INSERT INTO entry SELECT * FROM entry ON CONFLICT (seq) DO UPDATE SET person = 'adam'",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "UPDATE alembic_version SET version_num = '0000'",
)


@dataclass(frozen=True)
class Roles:
    owner: Database
    app: Database
    reader: Database


def _build_url_for_role(address: str, role: str) -> str:
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{role}:{role}@{rest.partition('@')[2]}"


@pytest.fixture
def roles(postgres: Postgres) -> Generator[Roles]:
    seal = SigningKey.create()
    owner = create_postgresql_database(postgres, seal)
    address = owner.url
    with owner.engine.connect() as connection:
        for role in ROLES:
            there = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
            if not connection.execute(there, {"role": role}).scalar():
                connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
        connection.commit()
    db_roles.grant_roles(owner, *ROLES)
    roles_under_test = Roles(
        owner, *(Database(_build_url_for_role(address, role), seal) for role in ROLES)
    )
    with roles_under_test.app.transaction() as tx:
        verification.open_log(tx)
        change_log.append_entry(tx, UnknownEvent(kind="noted"), person="dora")
    yield roles_under_test
    for database in (roles_under_test.owner, roles_under_test.app, roles_under_test.reader):
        database.close()


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_service_role_cannot_alter_the_change_log(roles: Roles, statement: str):
    with (
        pytest.raises(psycopg.errors.Error, match=r"permission|owner|append-only|attribute"),
        psycopg.connect(roles.app.url.replace("+psycopg", "")) as connection,
    ):
        connection.execute(statement.encode())
    with roles.reader.reading() as tx:
        assert verification.verify_log(tx).broken is None


def test_service_role_can_append_and_read_the_change_log(roles: Roles):
    assert db_roles.find_excess_rights(roles.app) == []
    assert migrations.is_schema_current(roles.app)
    with roles.app.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
    with roles.reader.reading() as tx:
        assert len(change_log.list_entries_after(tx, 0)) == 3


def test_without_the_service_role_the_table_owner_rewrites_the_change_log(roles: Roles):
    """The twin: what is refused above is refused for the role, and not by chance."""
    with roles.owner.engine.connect() as connection:
        connection.exec_driver_sql("DROP TRIGGER entry_append_only ON entry")
        connection.exec_driver_sql("UPDATE entry SET person = 'adam' WHERE seq = 2")
        connection.commit()
    with roles.reader.reading() as tx:
        assert verification.verify_log(tx).broken == 2
    assert "owns the change log" in db_roles.find_excess_rights(roles.owner)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO seen_request VALUES ('x', 1)", "TABLE session"]
)
def test_reader_role_cannot_write_or_read_sessions(roles: Roles, statement: str):
    with (
        pytest.raises(StoreUnavailable, match="permission denied"),
        roles.reader.transaction() as tx,
    ):
        tx.sql.execute(text(statement))


def test_role_without_insert_on_the_change_log_is_reported(roles: Roles):
    with roles.owner.engine.connect() as connection:
        connection.exec_driver_sql("REVOKE INSERT ON entry FROM keyturn_app")
        connection.commit()
    with pytest.raises(StoreUnavailable, match="permission denied"), roles.app.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="requested"))
    assert "permission denied" in str(roles.app.error)


def test_schema_upgrade_with_the_service_role_names_keyturn_migrations(
    postgres: Postgres, roles: Roles
):
    empty = Database(postgres.new_database(), SigningKey.create())
    app = Database(_build_url_for_role(empty.url, "keyturn_app"), SigningKey.create())
    with pytest.raises(StoreUnavailable, match="KEYTURN_MIGRATIONS"):
        migrations.upgrade_schema(app)
    app.close()
    empty.close()


@pytest.mark.parametrize("name", ["", 'x"; DROP TABLE entry', "Capital", "1st"])
def test_invalid_role_name_is_rejected(name: str):
    with pytest.raises(InvalidRequestError, match="not a valid role name"):
        db_roles.grant_statements(name or " ")
