"""`keyturn changelog show` and `export`: what was done, found again and handed on."""

import getpass
import json
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from bot.cli.place import NOT_FOUND, Place, at_place, plainly, stop
from bot.cli.progress import shown
from connectors.command import quote_text

if TYPE_CHECKING:
    from bot.run import Vote
    from bot.store.around import Happening
    from bot.store.changelog import Entry
    from bot.store.database import Database, Transaction
    from bot.store.entries import Wanted

_AT_ONCE = 1000
_RUN_FILTERS = ("area", "runbook", "state", "value", "words")


@click.command("show")
@click.option("--run", type=int, help="Only the entries of this run.")
@click.option("--host", default="", help="A host, or a pattern such as 'web*'.")
@click.option("--person", default="", help="Who did it.")
@click.option("--kind", default="", help="What it is: asked, approved, sending, …")
@click.option("--since", default="", help="02:00, yesterday, 2026-03-01 02:00 Europe/Paris, 2h.")
@click.option("--until", default="", help="As --since. Without a zone it is UTC.")
@click.option("--area", default="", help="Of runs in this area.")
@click.option("--runbook", default="", help="Of runs of this runbook, such as 'zfs scrub'.")
@click.option(
    "--state", default="", help="Of runs in this state, such as failed or 'needs attention'."
)
@click.option("--value", default="", help="Of runs with this value: sdb, or device=sdb.")
@click.option("--words", default="", help="Of runs whose values, end or output hold these words.")
@click.option("--around", default="", help="What changed around a moment, the likeliest first.")
@click.option("--within", default="30m", show_default=True, help="How far around it.")
@click.option("-n", "--most", type=click.IntRange(1, 10_000), default=30, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@at_place
def show(
    place: Place,
    *,
    run: int | None,
    around: str,
    within: str,
    most: int,
    as_json: bool,
    **wanted: str,
) -> None:
    """Print the newest entries that fit, oldest of them first; or what changed around a moment.

    Of area, runbook, state, value and words, the entries of the newest runs that fit are shown.

    For example: keyturn changelog show --around 02:00 --host 'web*' --within 45m
    """
    from bot.visible import one_line

    with plainly(), place.database() as database, database.reading() as tx:
        if around:
            _show_around(tx, around, within, wanted["host"], most=most, as_json=as_json)
            return
        entries = _entries(tx, run, wanted, most)
        if run and not entries:
            stop(f"there is nothing about run {run} in the change log", NOT_FOUND)
        if not entries and any(wanted.values()):
            unheard_of = one_line("; ".join(_unheard_of(place, tx, wanted)))
            stop(unheard_of or "nothing in the change log fits", NOT_FOUND)
    _print(entries, as_json=as_json)


def _print(entries: "Iterable[Entry]", *, as_json: bool) -> None:
    from bot import lines

    for entry in entries:
        click.echo(lines.as_json(entry) if as_json else lines.as_text(entry))


def _entries(
    tx: "Transaction", run: int | None, wanted: Mapping[str, str], most: int
) -> "list[Entry]":
    from bot.store import changelog, entries

    if run:
        return changelog.of_run(tx, run)
    return entries.newest(tx, _wanted(tx, wanted), most=most)[::-1]


def _unheard_of(place: Place, tx: "Transaction", typed: Mapping[str, str]) -> list[str]:
    """Say what it names that never was. Without a valid policy nobody knows who is in it."""
    from bot.policy import NoPolicy
    from bot.policy.directory import load
    from bot.stranger import strangers_to_the_log

    try:
        policy = load(place.policy())
    except NoPolicy:
        return []
    return [*strangers_to_the_log(tx, _wanted(tx, typed), policy).values()]


def _wanted(tx: "Transaction", typed: Mapping[str, str]) -> "Wanted":
    from bot import hindsight
    from bot.store import search, words
    from bot.store.entries import Wanted

    since, until = (
        hindsight.moment(typed[name], now=tx.now) if typed[name] else None
        for name in ("since", "until")
    )
    sought = None
    if any(typed[name] for name in _RUN_FILTERS):
        text = [*words.sought(typed["value"]), *words.sought(typed["words"])]
        sought = search.Filter(
            area=typed["area"] or None,
            words=" ".join(typed["runbook"].lower().split()) or None,
            states=_states(typed["state"]),
            text=text,
        )
    return Wanted(typed["host"].lower(), typed["person"], typed["kind"], since, until, sought)


def _states(typed: str) -> frozenset[str]:
    from bot.forms import NotUnderstood
    from bot.run import STANDINGS

    if typed and typed not in STANDINGS:
        raise NotUnderstood(
            f"there is no state {quote_text(typed)}: choose one of {', '.join(STANDINGS)}"
        )
    return frozenset({typed} if typed else ())


def _show_around(
    tx: "Transaction", at: str, within: str, host: str, *, most: int, as_json: bool
) -> None:
    from bot import hindsight
    from bot.store import around

    moment, reach = hindsight.moment(at, now=tx.now), hindsight.span(within)
    seen = around.seen(tx, moment, within=reach, host=host.lower() or "*", most=most)
    found = seen.happenings
    allowed = around.allowed(tx, found)
    if not as_json:
        between = f"{hindsight.written(moment - reach)} and {hindsight.written(moment + reach)}"
        click.echo(f"between {between}{f', on {host}' if host else ''}:")
        if not found:
            click.echo("nothing that Keyturn knows of")
    for one in found:
        votes = allowed.get(one.run or 0, ())
        click.echo(_json(one, votes) if as_json else _line(one, votes))
    if seen.left_out:
        click.echo(f"left out as less likely: {seen.left_out}; -n shows more", err=True)
    if seen.within < reach:
        looked = hindsight.written(moment - seen.within), hindsight.written(moment + seen.within)
        click.echo(f"so much happened that only {' to '.join(looked)} was looked at", err=True)


def _json(one: "Happening", votes: "Sequence[Vote]") -> str:
    """Tell it by the names that it has in the API."""
    from bot.moment import iso

    approved_by = [vote.person for vote in votes]
    told = vars(one) | {"at": iso(one.at), "approved_by": approved_by}
    return json.dumps(told, ensure_ascii=False)


def _line(one: "Happening", votes: "Sequence[Vote]") -> str:
    from bot import hindsight
    from bot.store import around

    run = f"run {one.run}" if one.run else f"#{one.entry}"
    return f"{hindsight.written(one.at)}  {run:<8} {one.state:<14} {around.told(one, votes)}"


@click.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "syslog"]),
    default="jsonl",
    show_default=True,
    help="jsonl has what hosts answered too, and is what docs/verify_changelog.py reads.",
)
@at_place
def export(place: Place, *, form: str) -> None:
    """Print every entry on a line: JSON, CSV for spreadsheets, or syslog (RFC 5424).

    That somebody did is in the change log. A cell of CSV is never a formula.
    """
    from bot import archive
    from bot.store import changelog
    from bot.store.export import exported

    machine = socket.gethostname()
    writers: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "jsonl": archive.as_json,
        "csv": archive.as_csv,
        "syslog": lambda entry: archive.as_syslog(entry, machine),
    }
    with plainly(), place.database() as database:
        _note(database, form)
        with database.reading() as tx:
            if form == "csv":
                click.echo(archive.csv_line(archive.COLUMNS), nl=False)
            stage = shown(quiet=not _into_a_file())("exporting", lambda: changelog.head(tx)[0])
            # Whoever reads along may go before the end: then the rows are let go of at once.
            with stage as told, closing(exported(tx)) as entries:
                lines = map(writers[form], entries)
                while some := list(islice(lines, _AT_ONCE)):
                    sys.stdout.write("".join(some))
                    told(len(some))
                sys.stdout.flush()


def _into_a_file() -> bool:
    """Say whether what is printed goes into a file, and not to a person or another program."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # it is none of the system's
        return False


def _note(database: "Database", form: str) -> None:
    """Log that somebody exported it; who may only read cannot, and is told."""
    from bot.store import changelog
    from bot.store.database import StoreUnavailable

    try:
        with database.transaction() as tx:
            changelog.append(tx, "exported", login=getpass.getuser(), format=form)
    except StoreUnavailable as trouble:
        click.echo(f"keyturn: this is not in the change log: {trouble}", err=True)
