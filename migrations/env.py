"""Where alembic finds the database and the tables."""

from alembic import context

from bot.db import tables
from bot.db.migrations import is_own_table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    render_as_batch=True,
    include_name=is_own_table,
)
with context.begin_transaction():
    context.run_migrations()
