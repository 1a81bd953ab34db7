"""`keyturn db …`: its schema, and what roles of PostgreSQL may do with it."""

import sys

import click

from bot.cli.place import FAILED, Place, at_place, plainly


@click.group()
def db() -> None:
    """Look after the database."""


@db.command("upgrade")
@at_place
def upgrade(place: Place) -> None:
    """Bring the database to the schema that this version works with."""
    from bot.store import schema

    with plainly(), place.database(place.migrations()) as database:
        schema.upgrade(database)
    click.echo("up to date")


@db.command("grants")
@click.argument("app")
@click.option("--reader", default="", help="A role that may only read what was done.")
def grants(*, app: str, reader: str) -> None:
    """Print SQL that lets the role APP work with the log and never change it. For PostgreSQL.

    For the owner of the tables, after each upgrade: keyturn db grants keyturn_app | psql …
    """
    from bot.store import rights

    with plainly():
        for statement in rights.grants(app, reader):
            click.echo(f"{statement};")


@db.command("check")
@at_place
def check(place: Place) -> None:
    """Say whether the database has the schema that this version works with."""
    from bot.store import rights, schema

    with plainly(), place.database() as database:
        current = schema.is_current(database)
        strong = rights.too_strong(database) if current else []
    click.echo("up to date" if current else "behind: run keyturn db upgrade")
    if strong:
        click.echo(f"our role is stronger than it needs to be: it {', '.join(strong)}")
    sys.exit(0 if current else FAILED)
