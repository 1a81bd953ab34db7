"""`keyturn changelog …`: search, verify and export the change log, and change its key."""

import getpass
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.cli.context import (
    ACTING_PERSON_ADVICE,
    FAILED,
    NOT_FOUND,
    NOT_UNDERSTOOD,
    REFUSED,
    CommandEnvironment,
    exit_with_error,
    pass_environment_only,
    wants_json,
)
from bot.cli.options import (
    acting_person_option,
    create_json_option,
    limit_option,
    option_with_aliases,
    pass_environment,
    reason_option,
    witness_option,
)
from bot.cli.progress import show_progress
from bot.cli.sections import CommandGroup
from bot.cli.terminal import (
    format_stored_time,
    get_zone_name,
    print_json,
    print_result,
    print_table,
    time_options,
)
from connectors.visible_text import quote_text

if TYPE_CHECKING:
    from bot.audit.change_log import Entry
    from bot.audit.checkpoints import Checkpoint
    from bot.audit.event_type import Event
    from bot.db.database import Database, Transaction
    from bot.model.run import Decision
    from bot.queries.log_search import EntryFilter
    from bot.queries.timeline import TimelineEvent

_BATCH_SIZE = 1000
_RUN_FILTER_OPTIONS = ("area", "runbook", "state", "value", "search")


@click.group("changelog", cls=CommandGroup)
def changelog_commands() -> None:
    """Search, verify and export the change log."""


@changelog_commands.command("show")
@click.option("--run", type=int, help="Only the entries of this run.")
@click.option("--host", default="", help="A host, or a pattern such as 'web*'.")
@click.option("--person", default="", help="Who acted.")
@click.option("--kind", default="", help="Kind of entry: requested, approved, …")
@click.option("--since", default="", help="2h, yesterday, 02:00, 2026-03-01 02:00 Europe/Paris.")
@click.option("--until", default="", help="Same formats as --since. Default zone: yours.")
@click.option("--area", default="", help="Only runs in this area.")
@click.option("--runbook", default="", help="Only runs of this runbook, such as 'zfs scrub'.")
@click.option(
    "--state", default="", help="Only runs in this state, such as failed or 'needs attention'."
)
@click.option("--value", default="", help="Only runs with this value: sdb, or device=sdb.")
@option_with_aliases(
    "--search",
    "--words",
    "search",
    default="",
    help="Only runs whose values, result or output contain these words.",
)
@click.option("--around", default="", help="Changes around a time, most relevant first.")
@click.option("--within", default="", help="Time before and after --around. Default: 1 h.")
@limit_option(30, help_text="Number of entries.")
@create_json_option("Print one JSON object per line.")
@time_options
@pass_environment_only
def show_log(
    environment: CommandEnvironment,
    *,
    run: int | None,
    around: str,
    within: str,
    limit: int,
    **filters: str,
) -> None:
    """Print the newest matching entries, oldest first; or the changes around a time.

    With --area, --runbook, --state, --value or --search, the entries of the newest matching runs.

    For example: keyturn changelog show --around 02:00 --host 'web*' --within 45m
    """
    with environment.open_database() as database, database.reading() as tx:
        if around:
            _print_timeline(tx, around, within, filters["host"], limit=limit)
            return
        entries = _list_entries(tx, run, filters, limit)
        if run and not entries:
            exit_with_error(f"the change log has no entries of run {run}", NOT_FOUND)
        if not entries and any(filters.values()):
            unknown_filters = "; ".join(_describe_unknown_filters(environment, tx, filters))
            exit_with_error(unknown_filters or "no matching entries in the change log", NOT_FOUND)
    _print_entries(entries)


def _print_entries(entries: "Iterable[Entry]") -> None:
    from bot.queries import log_formats
    from bot.queries.run_timeline import describe_facts, format_kind, summarise_facts

    if wants_json():
        for entry in entries:
            click.echo(log_formats.format_entry_as_json(entry))
        return
    rows = [
        (
            format_stored_time(entry.at, with_seconds=True),
            f"#{entry.seq}",
            f"run {entry.run}" if entry.run else "-",
            format_kind(entry.kind),
            entry.person or "-",
            entry.host or "-",
            entry.hash[:12],
            summarise_facts(describe_facts(entry, str)),
        )
        for entry in entries
    ]
    headings = ("TIME", "ENTRY", "RUN", "WHAT", "BY", "HOST", "HASH", "DETAILS")
    print_table(None, headings, rows, empty_message="The change log is empty.")


def _list_entries(
    tx: "Transaction", run_id: int | None, typed: Mapping[str, str], limit: int
) -> "list[Entry]":
    from bot.audit import change_log
    from bot.queries import log_search

    if run_id:
        return change_log.list_entries_of_run(tx, run_id)
    return log_search.find_newest_entries(tx, _build_entry_filter(tx, typed), limit=limit)[::-1]


def _describe_unknown_filters(
    environment: CommandEnvironment, tx: "Transaction", typed: Mapping[str, str]
) -> list[str]:
    """Describe each filter value that does not exist; none if the policy is invalid."""
    from bot.policy import NoPolicyError
    from bot.policy.loader import load_policy
    from bot.queries.unknown_filters import describe_unknown_log_names

    try:
        policy = load_policy(environment.settings.policy)
    except NoPolicyError:
        return []
    return [*describe_unknown_log_names(tx, _build_entry_filter(tx, typed), policy).values()]


def _build_entry_filter(tx: "Transaction", typed: Mapping[str, str]) -> "EntryFilter":
    from bot.db import search, search_words
    from bot.model import times
    from bot.queries.log_search import EntryFilter

    since, until = (
        times.parse_past_time(typed[name], now=tx.now, zone=get_zone_name())
        if typed[name]
        else None
        for name in ("since", "until")
    )
    run_filter = None
    if any(typed[name] for name in _RUN_FILTER_OPTIONS):
        text = [
            *search_words.parse_search(typed["value"]),
            *search_words.parse_search(typed["search"]),
        ]
        run_filter = search.RunFilter(
            area=typed["area"] or None,
            runbook=" ".join(typed["runbook"].lower().split()) or None,
            states=_parse_state(typed["state"]),
            text=text,
        )
    return EntryFilter(
        typed["host"].lower(),
        typed["person"],
        _parse_kind(typed["kind"]),
        since,
        until,
        run_filter,
    )


def _parse_kind(typed: str) -> str:
    """Return the kind of entries that a person typed, as it is stored or as it is printed."""
    from bot.audit.events import EVENT_TYPES
    from bot.queries.run_timeline import format_kind

    return next((one.kind for one in EVENT_TYPES if format_kind(one.kind) == typed), typed)


def _parse_state(typed: str) -> frozenset[str]:
    from bot.model.request_form import RequestSyntaxError
    from bot.model.run import RUN_STATUSES

    if typed and typed not in RUN_STATUSES:
        raise RequestSyntaxError(
            f"unknown state {quote_text(typed)}: use one of {', '.join(RUN_STATUSES)}"
        )
    return frozenset({typed} if typed else ())


def _print_timeline(
    tx: "Transaction", typed_time: str, typed_span: str, host: str, *, limit: int
) -> None:
    from bot.model import times
    from bot.queries import timeline

    at, span = times.parse_time_and_span(typed_time, typed_span, now=tx.now, zone=get_zone_name())
    changes = timeline.build_timeline(
        tx, at, span=span, host_pattern=host.lower() or "*", limit=limit
    )
    approvals = timeline.list_approvals(tx, changes.events)
    if wants_json():
        for event in changes.events:
            click.echo(_format_event_as_json(event, approvals.get(event.run or 0, ())))
    else:
        click.echo(f"Between {_format_range(at, span, tx.now)}{f' on {host}' if host else ''}:")
        rows = [_build_event_row(one, approvals.get(one.run or 0, ())) for one in changes.events]
        headings = ("TIME", "RUN", "STATE", "WHAT")
        print_table(None, headings, rows, empty_message="No known changes.")
    if changes.omitted:
        message = f"{changes.omitted} less relevant changes not shown: increase --limit"
        click.echo(message, err=True)
    if changes.searched_span < span:
        searched = _format_range(at, changes.searched_span, tx.now)
        click.echo(f"too many entries: searched only between {searched}", err=True)


def _format_range(at: int, span: int, now: int) -> str:
    """Return the times *span* before and after *at*, none in the future; in microseconds."""
    times = (at - span, max(at, min(at + span, now)))
    return " and ".join(format_stored_time(one, with_seconds=True) for one in times)


def _format_event_as_json(event: "TimelineEvent", decisions: "Sequence[Decision]") -> str:
    """Return the event as JSON with the member names of the API."""
    from bot.model.times import format_iso

    approved_by = [decision.person for decision in decisions]
    added = {"at": format_iso(event.at), "approved_by": approved_by, "label": event.label}
    data = vars(event) | added
    return json.dumps(data, ensure_ascii=False)


def _build_event_row(
    event: "TimelineEvent", decisions: "Sequence[Decision]"
) -> tuple[str, str, str, str]:
    from bot.queries import timeline

    run = f"run {event.run}" if event.run else f"#{event.entry}"
    at = format_stored_time(event.at, with_seconds=True)
    return at, run, event.label, timeline.describe_event(event, decisions)


@changelog_commands.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "syslog", "ocsf"]),
    default="jsonl",
    show_default=True,
    help="jsonl includes the output of hosts; docs/verify_changelog.py reads it.",
)
@click.option(
    "--tiles",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write files for tools of others into this directory instead: C2SP tlog-tiles.",
)
@pass_environment_only
def export_entries(environment: CommandEnvironment, *, form: str, tiles: Path | None) -> None:
    """Print every entry on one line: JSON, CSV for spreadsheets, syslog (RFC 5424), or OCSF.

    The export is recorded in the change log. CSV cells are escaped so that none is a formula.

    For example: keyturn changelog export --format csv > changelog.csv
    """
    if tiles is not None:
        _export_tiles(environment, tiles)
        return
    from bot.audit import change_log
    from bot.audit.events import LogExported
    from bot.queries import log_formats
    from bot.queries.log_formats import iterate_export

    machine = socket.gethostname()
    writers: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "jsonl": log_formats.format_archive_json,
        "csv": log_formats.format_archive_csv,
        "syslog": lambda entry: log_formats.format_archive_syslog(entry, machine),
        "ocsf": lambda entry: log_formats.format_archive_ocsf(entry, machine),
    }
    with environment.open_database() as database:
        _record_or_warn(database, LogExported(login=getpass.getuser(), format=form))
        with database.reading() as tx:
            if form == "csv":
                click.echo(log_formats.format_csv_row(log_formats.ARCHIVE_COLUMNS), nl=False)
            stage = show_progress(quiet=not _is_output_a_file())(
                "exporting", lambda: change_log.get_head(tx)[0]
            )
            # The reader of a pipe may close it early: then the database rows are released.
            with stage as advance, closing(iterate_export(tx)) as entries:
                lines = map(writers[form], entries)
                while batch := list(islice(lines, _BATCH_SIZE)):
                    sys.stdout.write("".join(batch))
                    advance(len(batch))
                sys.stdout.flush()


def _export_tiles(environment: CommandEnvironment, directory: Path) -> None:
    from bot.audit import change_log, tile_tree
    from bot.audit.events import LogExported

    with environment.open_database() as database:
        _record_or_warn(database, LogExported(login=getpass.getuser(), format="tiles"))
        with database.reading() as tx:
            stage = show_progress()("exporting", lambda: change_log.get_head(tx)[0])
            with stage as advance:
                point = tile_tree.write_tiles(tx, directory, advance)
    click.echo(f"{point.size} entries in {directory}; root {point.root}")


def _is_output_a_file() -> bool:
    """Return whether standard output is a file, and not a terminal or a pipe."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # not a file of the operating system
        return False


def _record_or_warn(database: "Database", event: "Event") -> None:
    """Record an act in the change log; warn if the database is read-only."""
    from bot.audit import change_log
    from bot.db.database import StoreUnavailable

    try:
        with database.transaction() as tx:
            change_log.append_entry(tx, event)
    except StoreUnavailable as error:
        click.echo(f"keyturn: cannot record this in the change log: {error}", err=True)


def _check_key(_context: click.Context, _parameter: click.Parameter, key: str) -> str:
    from bot.model.verifier_keys import parse_verifier_key

    try:
        found = parse_verifier_key(key).public_key if "+" in key else key.lower()
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if key and not re.fullmatch("[0-9a-f]{64}", found):
        raise click.BadParameter("give what `keyturn changelog key` prints, or 64 hex digits")
    return found


@changelog_commands.command("proof")
@click.argument("entry", type=click.IntRange(1, 2**53 - 1), required=False)
@click.option("--run", type=click.IntRange(1, 2**31 - 1), help="All proofs of this run, as ZIP.")
@pass_environment_only
def prove_entry(environment: CommandEnvironment, *, entry: int | None, run: int | None) -> None:
    """Print a proof of one entry, in the format tlog-proof of C2SP, or those of a run.

    It holds the entry and shows that it is under a signed root. Anyone can verify it without the
    log: python3 docs/verify_changelog.py FILE --key KEY.

    For example: keyturn changelog proof --run 7 > run-7-proofs.zip
    """
    from bot.audit import entry_proof

    if (entry is None) == (run is None):
        raise click.UsageError("name an entry, or a run with --run")
    with environment.open_database() as database, database.reading() as tx:
        if run is not None:
            packed = entry_proof.pack_run_proofs(entry_proof.build_run_proofs(tx, run))
            sys.stdout.buffer.write(packed)
        elif entry is not None:
            click.echo(entry_proof.build_proof(tx, entry), nl=False)


@changelog_commands.command("verify")
@witness_option("File of a witness to compare with; repeatable. Default: KEYTURN_WITNESS.")
@click.option(
    "--key",
    default="",
    callback=_check_key,
    help="The required signing key, as `keyturn changelog key` prints it, or 64 hex digits.",
)
@pass_environment
def verify_log(environment: CommandEnvironment, *, witnesses: tuple[Path, ...], key: str) -> None:
    """Recompute every hash and root, and compare them with the signed checkpoints and witnesses.

    Exit status 1 if an entry was changed, forged or is missing. The log records the verification,
    unless the log is broken.
    """
    from bot.audit import verification
    from bot.audit.events import LogVerified

    with environment.open_database() as database:
        points = _read_checkpoints(environment, witnesses)
        with database.reading() as tx:
            verdict = verification.verify_log(
                tx,
                required_key=key,
                witnesses=points,
                stages=show_progress(),
            )
        if verdict.broken is None:
            _record_or_warn(database, LogVerified(login=getpass.getuser(), key=key))
    if wants_json():
        print_json(vars(verdict))
    elif verdict.broken is None:
        click.echo(f"{verdict.entries} entries, log intact; root {verdict.root}")
        agree = len(points) - verdict.lost
        click.echo(f"signed by {verdict.key}; {agree} witness checkpoints match")
        if verdict.lost:
            click.echo(f"witness checkpoints of entries acknowledged as lost: {verdict.lost}")
    else:
        click.echo(f"BROKEN at entry {verdict.broken}: {verdict.why}", err=True)
    sys.exit(FAILED if verdict.broken is not None else 0)


@changelog_commands.command("key")
@pass_environment_only
def print_key(environment: CommandEnvironment) -> None:
    """Print the verifier key of the log, for witnesses and tools of others.

    It is the key that signs now, in the format signed-note of C2SP.
    """
    from bot.audit import verification

    with environment.open_database() as database, database.reading() as tx:
        key = verification.get_verifier_key(tx)
    if key is None:
        exit_with_error("the change log has no key yet: start Keyturn first", NOT_FOUND)
    click.echo(key.text)


@changelog_commands.command("rotate-key")
@pass_environment
def rotate_key(environment: CommandEnvironment) -> None:
    """Replace the signing key of the change log. The log records it, signed by both keys.

    Verifies the whole log first; a broken log keeps its key. Stop the service first. The old key
    is deleted, so that it cannot be stolen. People must sign in again; tokens stay valid.
    """
    from bot.maintenance import key_rotation

    with _open_exclusively(environment) as database:
        result = key_rotation.rotate_signing_key(
            database,
            environment.settings.key_directory / "changelog.key",
            witnesses=_read_checkpoints(environment),
            stages=show_progress(),
        )
    for token in result.ended:
        click.echo(
            f"Ended token {token.id} ({token.prefix}…) of {token.person}: the change log does not "
            "record its creation.",
            err=True,
        )
    line = (
        f"New signing key {result.public}. Back up changelog.key, apart from the database. "
        "People must sign in again; tokens stay valid."
    )
    data = {"public": result.public, "ended_tokens": [token.id for token in result.ended]}
    print_result(data, [line])


@changelog_commands.command("acknowledge")
@click.argument("first", type=int)
@click.option("--lost", type=click.IntRange(1), required=True, help="Number of lost entries.")
@reason_option("What was lost and why, recorded permanently.", required=True)
@acting_person_option
@witness_option("File of a witness that has them; repeatable. Default: KEYTURN_WITNESS.")
@pass_environment
def acknowledge_loss(
    environment: CommandEnvironment,
    *,
    first: int,
    lost: int,
    reason: str,
    person: str,
    witnesses: tuple[Path, ...],
) -> None:
    """Acknowledge that entries from FIRST on were lost, for example after a restore.

    Until then `keyturn changelog verify` exits with status 1. Stop the service first. The numbers
    must be those of the entries that witnesses have and the log lacks. Those who may resume after
    `stop all` may do this. The log records who acknowledged the loss and why.

    For example: keyturn changelog acknowledge 4711 --lost 12 --as olga --reason "restored Monday's
    backup"
    """
    from bot.maintenance import lost_entries

    with _open_exclusively(environment) as database:
        _check_may_resume(environment, database, person)
        points = _read_checkpoints(environment, witnesses)
        if not points:
            exit_with_error(
                "no checkpoints: add --witness FILE that has the entries", NOT_UNDERSTOOD
            )
        with database.transaction(seconds=3600) as tx:
            lost_entries.acknowledge_loss(
                tx,
                points,
                first=first,
                lost_entries=lost,
                person=person,
                reason=reason,
                login=getpass.getuser(),
            )
    line = f"Acknowledged the loss of {lost} entries from {first} on."
    print_result({"first": first, "lost": lost}, [line])


@changelog_commands.command("set-aside")
@click.option("--rows", type=click.IntRange(1), help="How many rows, once you have seen them.")
@reason_option("How they came there, recorded permanently.", required=True)
@acting_person_option
@witness_option("File of a witness to compare with; repeatable. Default: KEYTURN_WITNESS.")
@pass_environment
def set_rows_aside(
    environment: CommandEnvironment,
    *,
    rows: int | None,
    reason: str,
    person: str,
    witnesses: tuple[Path, ...],
) -> None:
    """Set aside rows that someone inserted into the change log, which stop everything.

    Without --rows, prints the rows behind the last checkpoint that Keyturn signed, and changes
    nothing. With it, moves them into a file in the data directory, and logs it. Stop the service
    first. Those who may resume after `stop all` may do this.

    For example: keyturn changelog set-aside --rows 1 --as olga --reason "inserted with psql"
    """
    from bot.maintenance import set_aside
    from bot.model.text import format_count

    url = environment.settings.migrations.get_secret_value()
    with _open_exclusively(environment, url) as database:
        _check_may_resume(environment, database, person)
        if rows is None:
            with database.transaction() as tx:
                found = set_aside.find_foreign_rows(tx)
            lines = [
                *found.describe(),
                f"{format_count(len(found.rows), 'row')} behind entry {found.size}",
            ]
            print_result({"after": found.size, "rows": found.describe()}, lines)
            return
        file = set_aside.set_rows_aside(
            database,
            environment.settings.data,
            count=rows,
            person=person,
            reason=reason,
            login=getpass.getuser(),
            witnesses=_read_checkpoints(environment, witnesses),
        )
    line = f"Set aside {rows} rows in {file}. Start the service again."
    print_result({"rows": rows, "file": str(file)}, [line])


def _check_may_resume(environment: CommandEnvironment, database: "Database", person: str) -> None:
    """Exit with an error unless a person, who is not banned, may resume what others stopped."""
    from bot.policy import PolicyDirectory
    from bot.queries.banned_people import PolicyWithoutBanned

    policies = PolicyWithoutBanned(PolicyDirectory(environment.settings.policy), database)
    policy = policies.get_policy()
    if policy.find_person(person) is None:
        exit_with_error(f"unknown person {person}. {ACTING_PERSON_ADVICE}", NOT_FOUND)
    if not policy.get_order_ruling(person, "resume").allowed:
        able = sorted(policy.list_people_allowed("resume", except_person=person))
        who = f"those who can: {', '.join(able)}" if able else "the policy allows no one"
        exit_with_error(f"{person} cannot acknowledge a loss; {who}", REFUSED)


@contextmanager
def _open_exclusively(environment: CommandEnvironment, url: str = "") -> "Generator[Database]":
    """Open the database while the service is stopped."""
    from bot.db.database import lock_data_directory
    from bot.db.process_lock import lock_exclusive

    with (
        environment.open_database(url) as database,
        lock_data_directory(environment.settings.data),
        lock_exclusive(database),
    ):
        yield database


def _read_checkpoints(
    environment: CommandEnvironment, files: Sequence[Path] = ()
) -> "list[Checkpoint]":
    """Read the files of witnesses; without any, that of the settings if it exists."""
    from bot.integrations import witness_file

    ours = environment.settings.witness
    files = files or ([ours] if ours is not None and ours.exists() else [])
    return [point for file in files for point in witness_file.read_checkpoints(file)]
