"""Where alembic finds the database and the tables."""

from alembic import context

from bot.store import programs, tables

connection = context.config.attributes["connection"]
# Each module adds its own to the same.
assert programs.metadata is tables.metadata  # noqa: S101 - alembic sees them all
context.configure(connection=connection, target_metadata=tables.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
