"""Where alembic finds the database and the tables."""

from alembic import context

from bot.store import families
from bot.store.schema import is_ours

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=families.metadata,
    render_as_batch=True,
    include_name=is_ours,
)
with context.begin_transaction():
    context.run_migrations()
