"""Alembic's migrations of the store."""
