"""`keyturn factors`: whose second factors there are, and how to begin anew without their key."""

import click

from bot.cli.front import Family
from bot.cli.place import Place, at_place, plainly
from bot.cli.service import as_json, tell


@click.group(cls=Family)
def factors() -> None:
    """Look after the second factors of people."""


@factors.command("list")
@as_json
@at_place
def list_factors(place: Place, *, as_json: bool) -> None:
    """Print every second factor by its digest, and whether it counts."""
    from bot.policy.directory import load
    from bot.store import factors as store
    from bot.workflow.second_factor import counts

    with plainly(), place.database() as database, database.reading() as tx:
        policy = load(place.policy())
        found = [(factor, counts(policy, factor)) for factor in store.everybodys(tx)]
    told = [
        {
            "person": factor.person,
            "kind": factor.kind,
            "digest": factor.digest,
            "confirmed_by": factor.confirmed_by,
            "counts": good,
        }
        for factor, good in found
    ]
    lines = [
        f"{factor.digest}  {factor.kind:<7}  {factor.person}  "
        f"{'counts' if good else 'does not count yet'}"
        for factor, good in found
    ]
    tell(told, lines, as_json=as_json, empty="nobody has a second factor")


@factors.command()
@click.option("--why", required=True, help="What the change log shall say about it.")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@as_json
@at_place
def forget(place: Place, *, why: str, yes: bool, as_json: bool) -> None:
    """Forget them all, where their key is lost for good.

    Stop the service first, and take the new secrets.key away if there is one.
    """
    from bot.store import changelog, safe
    from bot.store import factors as store

    if not yes:
        asked = "Everybody has to enrol anew. Forget every second factor?"
        click.confirm(asked, abort=True, err=as_json)
    with plainly(), place.database() as database, database.transaction() as tx:
        number = store.forget_all(tx)
        safe.forget(tx)
        changelog.append(tx, "factors forgotten", door="cli", why=why, number=number)
    said = f"{number} second factors are forgotten; people enrol anew at /second-factor"
    tell({"forgotten": number}, [said], as_json=as_json)
