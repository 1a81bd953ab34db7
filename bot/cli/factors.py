"""`keyturn factors`: whose second factors there are, and how to begin anew without their key."""

import json

import click

from bot.cli.front import Family
from bot.cli.place import Place, at_place, plainly


@click.group(cls=Family)
def factors() -> None:
    """Look after the second factors of people."""


@factors.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@at_place
def list_factors(place: Place, *, as_json: bool) -> None:
    """Print every second factor by its digest, and whether it counts."""
    from bot.policy.directory import load
    from bot.store import factors as store
    from bot.workflow.second_factor import counts

    with plainly(), place.database() as database, database.reading() as tx:
        policy = load(place.policy())
        found = [(factor, counts(policy, factor)) for factor in store.everybodys(tx)]
    for factor, good in found:
        if as_json:
            told = {"person": factor.person, "kind": factor.kind, "digest": factor.digest}
            click.echo(json.dumps(told | {"confirmed_by": factor.confirmed_by, "counts": good}))
        else:
            how = "counts" if good else "does not count yet"
            click.echo(f"{factor.digest}  {factor.kind:<7}  {factor.person}  {how}")


@factors.command()
@click.option("--why", required=True, help="What the change log shall say about it.")
@click.confirmation_option(prompt="Everybody has to enrol anew. Forget every second factor?")
@at_place
def forget(place: Place, *, why: str) -> None:
    """Forget them all, where their key is lost for good.

    Stop the service first, and take the new secrets.key away if there is one.
    """
    from bot.store import changelog, safe
    from bot.store import factors as store

    with plainly(), place.database() as database, database.transaction() as tx:
        number = store.forget_all(tx)
        safe.forget(tx)
        changelog.append(tx, "factors forgotten", door="cli", why=why, number=number)
    click.echo(f"{number} second factors are forgotten; people enrol anew at /second-factor")
