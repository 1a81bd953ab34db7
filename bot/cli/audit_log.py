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

from bot.cli.context import (
    NOT_FOUND,
    CommandEnvironment,
    exit_on_errors,
    exit_with_error,
    pass_environment,
)
from bot.cli.progress import show_progress
from connectors.command import quote_text

if TYPE_CHECKING:
    from bot.audit.change_log import Entry
    from bot.audit.query import EntryFilter
    from bot.audit.timeline import TimelineEvent
    from bot.db.database import Database, Transaction
    from bot.model.run import Decision

_BATCH_SIZE = 1000
_RUN_FILTER_OPTIONS = ("area", "runbook", "state", "value", "words")


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
@pass_environment
def show_log(
    environment: CommandEnvironment,
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

    with exit_on_errors(), environment.open_database() as database, database.reading() as tx:
        if around:
            _print_timeline(tx, around, within, wanted["host"], limit=most, as_json=as_json)
            return
        entries = _list_entries(tx, run, wanted, most)
        if run and not entries:
            exit_with_error(f"there is nothing about run {run} in the change log", NOT_FOUND)
        if not entries and any(wanted.values()):
            unknown_filters = escape_to_one_line(
                "; ".join(_describe_unknown_filters(environment, tx, wanted))
            )
            exit_with_error(unknown_filters or "nothing in the change log fits", NOT_FOUND)
    _print_entries(entries, as_json=as_json)


def _print_entries(entries: "Iterable[Entry]", *, as_json: bool) -> None:
    from bot.audit import formats

    for entry in entries:
        click.echo(formats.format_entry_as_json(entry) if as_json else formats.format_entry(entry))


def _list_entries(
    tx: "Transaction", run_id: int | None, typed: Mapping[str, str], limit: int
) -> "list[Entry]":
    from bot.audit import change_log, query

    if run_id:
        return change_log.list_entries_of_run(tx, run_id)
    return query.find_newest_entries(tx, _build_entry_filter(tx, typed), limit=limit)[::-1]


def _describe_unknown_filters(
    environment: CommandEnvironment, tx: "Transaction", typed: Mapping[str, str]
) -> list[str]:
    """Say what it names that never was. Without a valid policy nobody knows who is in it."""
    from bot.policy import NoPolicyError
    from bot.policy.loader import load_policy
    from bot.workflow.unknown_filters import describe_unknown_log_names

    try:
        policy = load_policy(environment.get_policy_directory())
    except NoPolicyError:
        return []
    return [*describe_unknown_log_names(tx, _build_entry_filter(tx, typed), policy).values()]


def _build_entry_filter(tx: "Transaction", typed: Mapping[str, str]) -> "EntryFilter":
    from bot.audit.query import EntryFilter
    from bot.db import search, search_words
    from bot.model import times

    since, until = (
        times.parse_past_moment(typed[name], now=tx.now) if typed[name] else None
        for name in ("since", "until")
    )
    sought = None
    if any(typed[name] for name in _RUN_FILTER_OPTIONS):
        text = [
            *search_words.parse_search(typed["value"]),
            *search_words.parse_search(typed["words"]),
        ]
        sought = search.RunFilter(
            area=typed["area"] or None,
            runbook=" ".join(typed["runbook"].lower().split()) or None,
            states=_parse_state(typed["state"]),
            text=text,
        )
    return EntryFilter(typed["host"].lower(), typed["person"], typed["kind"], since, until, sought)


def _parse_state(typed: str) -> frozenset[str]:
    from bot.model.request_form import RequestSyntaxError
    from bot.model.run import RUN_STATUSES

    if typed and typed not in RUN_STATUSES:
        raise RequestSyntaxError(
            f"there is no state {quote_text(typed)}: choose one of {', '.join(RUN_STATUSES)}"
        )
    return frozenset({typed} if typed else ())


def _print_timeline(
    tx: "Transaction", typed_time: str, typed_span: str, host: str, *, limit: int, as_json: bool
) -> None:
    from bot.audit import timeline
    from bot.model import times

    moment, reach = times.parse_past_moment(typed_time, now=tx.now), times.parse_span(typed_span)
    seen = timeline.build_timeline(
        tx, moment, span=reach, host_pattern=host.lower() or "*", limit=limit
    )
    found = seen.events
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
        click.echo(_format_event_as_json(one, votes) if as_json else _format_event(one, votes))
    if seen.omitted:
        click.echo(f"left out as less likely: {seen.omitted}; -n shows more", err=True)
    if seen.searched_span < reach:
        looked = (
            times.format_moment(moment - seen.searched_span),
            times.format_moment(moment + seen.searched_span),
        )
        click.echo(f"so much happened that only {' to '.join(looked)} was looked at", err=True)


def _format_event_as_json(event: "TimelineEvent", decisions: "Sequence[Decision]") -> str:
    """Tell it by the names that it has in the API."""
    from bot.model.times import format_iso

    approved_by = [vote.person for vote in decisions]
    told = vars(event) | {"at": format_iso(event.at), "approved_by": approved_by}
    return json.dumps(told, ensure_ascii=False)


def _format_event(event: "TimelineEvent", decisions: "Sequence[Decision]") -> str:
    from bot.audit import timeline
    from bot.model import times

    run = f"run {event.run}" if event.run else f"#{event.entry}"
    told = timeline.describe_event(event, decisions)
    return f"{times.format_moment(event.at)}  {run:<8} {event.state:<14} {told}"


@click.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "syslog"]),
    default="jsonl",
    show_default=True,
    help="jsonl has what hosts answered too, and is what docs/verify_changelog.py reads.",
)
@pass_environment
def export_entries(environment: CommandEnvironment, *, form: str) -> None:
    """Print every entry on a line: JSON, CSV for spreadsheets, or syslog (RFC 5424).

    That somebody did is in the change log. A cell of CSV is never a formula.
    """
    from bot.audit import change_log, formats
    from bot.audit.formats import iterate_export

    machine = socket.gethostname()
    writers: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "jsonl": formats.format_archive_json,
        "csv": formats.format_archive_csv,
        "syslog": lambda entry: formats.format_archive_syslog(entry, machine),
    }
    with exit_on_errors(), environment.open_database() as database:
        _record_export(database, form)
        with database.reading() as tx:
            if form == "csv":
                click.echo(formats.format_csv_row(formats.ARCHIVE_COLUMNS), nl=False)
            stage = show_progress(quiet=not _is_output_a_file())(
                "exporting", lambda: change_log.get_head(tx)[0]
            )
            # Whoever reads along may go before the end: then the rows are let go of at once.
            with stage as told, closing(iterate_export(tx)) as entries:
                lines = map(writers[form], entries)
                while some := list(islice(lines, _BATCH_SIZE)):
                    sys.stdout.write("".join(some))
                    told(len(some))
                sys.stdout.flush()


def _is_output_a_file() -> bool:
    """Say whether what is printed goes into a file, and not to a person or another program."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # it is none of the system's
        return False


def _record_export(database: "Database", log_format: str) -> None:
    """Log that somebody exported it; who may only read cannot, and is told."""
    from bot.audit import change_log
    from bot.db.database import StoreUnavailable

    try:
        with database.transaction() as tx:
            change_log.append_entry(tx, "log exported", login=getpass.getuser(), format=log_format)
    except StoreUnavailable as trouble:
        click.echo(f"keyturn: this is not in the change log: {trouble}", err=True)
