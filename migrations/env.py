"""Where alembic finds the database and the tables."""

from alembic import context

from bot.store import heard, leases, lookups, outside, programs, tables
from bot.store.schema import is_ours

connection = context.config.attributes["connection"]
# Each module adds its own to the same.
for module in (heard, leases, lookups, outside, programs):
    assert module.metadata is tables.metadata  # noqa: S101 - alembic sees them all
context.configure(
    connection=connection,
    target_metadata=tables.metadata,
    render_as_batch=True,
    include_name=is_ours,
)
with context.begin_transaction():
    context.run_migrations()
