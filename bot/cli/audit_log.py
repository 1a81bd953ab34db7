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

from bot.cli.context import NOT_FOUND, Place, at_place, plainly, stop
from bot.cli.progress import show_progress
from connectors.command import quote_text

if TYPE_CHECKING:
    from bot.audit.change_log import Entry
    from bot.audit.query import EntryFilter
    from bot.audit.timeline import TimelineEvent
    from bot.db.database import Database, Transaction
    from bot.model.run import Vote

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
    from bot.model.text import escape_to_one_line

    with plainly(), place.database() as database, database.reading() as tx:
        if around:
            _show_around(tx, around, within, wanted["host"], most=most, as_json=as_json)
            return
        entries = _entries(tx, run, wanted, most)
        if run and not entries:
            stop(f"there is nothing about run {run} in the change log", NOT_FOUND)
        if not entries and any(wanted.values()):
            unheard_of = escape_to_one_line("; ".join(_unheard_of(place, tx, wanted)))
            stop(unheard_of or "nothing in the change log fits", NOT_FOUND)
    _print(entries, as_json=as_json)


def _print(entries: "Iterable[Entry]", *, as_json: bool) -> None:
    from bot.audit import formats

    for entry in entries:
        click.echo(formats.entry_to_json(entry) if as_json else formats.format_entry(entry))


def _entries(
    tx: "Transaction", run: int | None, wanted: Mapping[str, str], most: int
) -> "list[Entry]":
    from bot.audit import change_log, query

    if run:
        return change_log.list_entries_of_run(tx, run)
    return query.find_newest_entries(tx, _wanted(tx, wanted), most=most)[::-1]


def _unheard_of(place: Place, tx: "Transaction", typed: Mapping[str, str]) -> list[str]:
    """Say what it names that never was. Without a valid policy nobody knows who is in it."""
    from bot.policy import NoPolicy
    from bot.policy.loader import load_policy
    from bot.workflow.unknown_filters import describe_unknown_log_names

    try:
        policy = load_policy(place.policy())
    except NoPolicy:
        return []
    return [*describe_unknown_log_names(tx, _wanted(tx, typed), policy).values()]


def _wanted(tx: "Transaction", typed: Mapping[str, str]) -> "EntryFilter":
    from bot.audit.query import EntryFilter
    from bot.db import search, search_words
    from bot.model import times

    since, until = (
        times.parse_past_moment(typed[name], now=tx.now) if typed[name] else None
        for name in ("since", "until")
    )
    sought = None
    if any(typed[name] for name in _RUN_FILTERS):
        text = [
            *search_words.parse_search(typed["value"]),
            *search_words.parse_search(typed["words"]),
        ]
        sought = search.RunFilter(
            area=typed["area"] or None,
            words=" ".join(typed["runbook"].lower().split()) or None,
            states=_states(typed["state"]),
            text=text,
        )
    return EntryFilter(typed["host"].lower(), typed["person"], typed["kind"], since, until, sought)


def _states(typed: str) -> frozenset[str]:
    from bot.model.request_form import NotUnderstood
    from bot.model.run import STANDINGS

    if typed and typed not in STANDINGS:
        raise NotUnderstood(
            f"there is no state {quote_text(typed)}: choose one of {', '.join(STANDINGS)}"
        )
    return frozenset({typed} if typed else ())


def _show_around(
    tx: "Transaction", at: str, within: str, host: str, *, most: int, as_json: bool
) -> None:
    from bot.audit import timeline
    from bot.model import times

    moment, reach = times.parse_past_moment(at, now=tx.now), times.parse_span(within)
    seen = timeline.build_timeline(tx, moment, within=reach, host=host.lower() or "*", most=most)
    found = seen.happenings
    allowed = timeline.list_approvals(tx, found)
    if not as_json:
        between = (
            f"{times.format_moment(moment - reach)} and {times.format_moment(moment + reach)}"
        )
        click.echo(f"between {between}{f', on {host}' if host else ''}:")
        if not found:
            click.echo("nothing that Keyturn knows of")
    for one in found:
        votes = allowed.get(one.run or 0, ())
        click.echo(_json(one, votes) if as_json else _line(one, votes))
    if seen.left_out:
        click.echo(f"left out as less likely: {seen.left_out}; -n shows more", err=True)
    if seen.within < reach:
        looked = (
            times.format_moment(moment - seen.within),
            times.format_moment(moment + seen.within),
        )
        click.echo(f"so much happened that only {' to '.join(looked)} was looked at", err=True)


def _json(one: "TimelineEvent", votes: "Sequence[Vote]") -> str:
    """Tell it by the names that it has in the API."""
    from bot.model.times import format_iso

    approved_by = [vote.person for vote in votes]
    told = vars(one) | {"at": format_iso(one.at), "approved_by": approved_by}
    return json.dumps(told, ensure_ascii=False)


def _line(one: "TimelineEvent", votes: "Sequence[Vote]") -> str:
    from bot.audit import timeline
    from bot.model import times

    run = f"run {one.run}" if one.run else f"#{one.entry}"
    told = timeline.describe_event(one, votes)
    return f"{times.format_moment(one.at)}  {run:<8} {one.state:<14} {told}"


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
    from bot.audit import change_log, formats
    from bot.audit.formats import export_log

    machine = socket.gethostname()
    writers: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "jsonl": formats.archive_json,
        "csv": formats.archive_csv,
        "syslog": lambda entry: formats.archive_syslog(entry, machine),
    }
    with plainly(), place.database() as database:
        _note(database, form)
        with database.reading() as tx:
            if form == "csv":
                click.echo(formats.format_csv_row(formats.COLUMNS), nl=False)
            stage = show_progress(quiet=not _into_a_file())(
                "exporting", lambda: change_log.get_head(tx)[0]
            )
            # Whoever reads along may go before the end: then the rows are let go of at once.
            with stage as told, closing(export_log(tx)) as entries:
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
    from bot.audit import change_log
    from bot.db.database import StoreUnavailable

    try:
        with database.transaction() as tx:
            change_log.append_entry(tx, "exported", login=getpass.getuser(), format=form)
    except StoreUnavailable as trouble:
        click.echo(f"keyturn: this is not in the change log: {trouble}", err=True)
