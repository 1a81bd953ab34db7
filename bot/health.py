"""Health of the service: database, change log, witnesses, clock, work and keys.

Unlike the doctor, it contacts neither hosts nor chat, so it is cheap to check often.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.audit import change_log
from bot.db import host_contacts, leases, procrastinate_queue, stats
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.integrations.witnesses import WitnessState
from bot.model.check_result import (
    CheckResult,
    create_error_result,
    create_ok_result,
    create_warning_result,
)
from bot.model.text import format_count
from bot.policy import NoPolicyError, Policy, PolicySource
from bot.policy.matrix import build_current_matrix
from bot.signing.page import hash_signing_page

_SECOND = 1_000_000
# A larger difference between the clocks is an error of their time service.
_SKEW_SECONDS = 2.0
_SLOW_MILLISECONDS = 500
# Workers poll every second. A run that waits longer than this has no worker.
_UNATTENDED_SECONDS = 15
_OLD_KEY_DAYS = 366


CheckWithPolicy = Callable[[Transaction, Policy], Iterable[CheckResult]]
"""A check of a feature, which reads the database and the policy."""


def check_signing_page(
    base_url: str, elsewhere: str, _tx: Transaction, policy: Policy
) -> Iterator[CheckResult]:
    """Say who serves the page on which people sign plans, where people have signing keys.

    elsewhere: its address on another server; "" if it is Keyturn's.
    """
    if not any(person.signing_keys for person in policy.organisation.people.values()):
        return
    whose = (
        f"is at {elsewhere}, on another server"
        if elsewhere
        else f"is at {base_url}/sign: anyone who can alter it there while people sign can show "
        "them another plan. `keyturn signing-page` prints it for another server"
    )
    message = f"{whose}. Its sha256sum has to be {hash_signing_page(base_url)}"
    yield create_ok_result("Signing page", message)


def check_signing_keys(tx: Transaction, policy: Policy) -> Iterator[CheckResult]:
    """Say who has to sign plans and has no key, and what can never be approved because of that."""
    matrix = build_current_matrix(policy, tx.now)
    if not matrix.signers:
        return
    lacking = [one.name for one in matrix.signers if one.lacks_key]
    if lacking:
        yield create_warning_result(
            "Signing keys",
            f"{_join_names(lacking)} {'has' if len(lacking) == 1 else 'have'} no signing key, but "
            "plans to sign: see /second-factor#signing, or keyturn policy signers --table",
        )
    never = [row for row in matrix.rows if any(cell.lacks_keys for cell in row.cells)]
    for what in dict.fromkeys(f"{row.what}, {row.where}" for row in never):
        yield create_warning_result(
            "Signing keys",
            f"too few approvers have one for {what}: some requests of it can never be approved",
        )
    if not lacking and not never:
        keys = sum(len(one.keys) for one in matrix.signers)
        message = f"{format_count(len(matrix.signers), 'person', plural='people')}"
        yield create_ok_result("Signing keys", f"{format_count(keys, 'key')} of {message}")


def check_witness_count(
    configured: int, _tx: Transaction, policy: Policy
) -> Iterator[CheckResult]:
    """Say if a rule requires more witnesses than the settings name. configured: their number."""
    required = policy.most_witnesses
    if required > configured:
        count = format_count(required, "witness", plural="witnesses")
        yield create_error_result(
            "Witnesses",
            f"a rule requires {count} (@witnessed), and KEYTURN_WITNESSES names {configured}: "
            "what it permits waits. Add witnesses there",
        )


def _count_nothing() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True)
class ServiceHealth:
    """Checks the health of the service."""

    database: Database
    count_unwitnessed: Callable[[], Mapping[str, int]] = _count_nothing
    """Returns the number of entries that each witness lacks."""
    spool: Path | None = None
    """The file of entries that could not be logged."""
    keys: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Key files by their purpose."""
    policies: PolicySource | None = None
    """Names what the checks of features ask for."""
    policy_checks: Sequence[CheckWithPolicy] = ()
    """Of the features."""
    clock: Callable[[], float] = time.time
    """Returns seconds since 1970."""
    list_witness_states: Callable[[], Sequence[WitnessState]] = tuple
    """Returns what is known of the witnesses of the log."""

    def list_results(self) -> list[CheckResult]:
        """Run all checks, the database first: most of the others need it."""
        began = time.monotonic()
        try:
            with self.database.reading() as tx:
                took = round((time.monotonic() - began) * 1000)
                results = [*self._check_database(took), *self._check_with_database(tx)]
            results += self._check_witnesses()
        except StoreUnavailable as error:
            results = [
                create_error_result("Change log", error.public_message)
                if isinstance(error, change_log.LogAlteredError)
                else create_error_result("Database", f"{error}: nothing runs until it answers")
            ]
        return [*results, *self._check_spool(), *self._check_keys()]

    def _check_database(self, milliseconds: int) -> Iterator[CheckResult]:
        kind = "SQLite" if self.database.embedded else "PostgreSQL"
        message = f"{kind} answers in {milliseconds or '<1'} ms"
        yield (
            create_ok_result("Database", message)
            if milliseconds < _SLOW_MILLISECONDS
            else create_warning_result("Database", f"{message}: find out what slows it down")
        )
        if error := self.database.error:
            is_altered = isinstance(error, change_log.LogAlteredError)
            why = f"cannot be written, so nothing runs: {error}"
            yield create_error_result("Change log", error.public_message if is_altered else why)

    def _check_with_database(self, tx: Transaction) -> Iterator[CheckResult]:
        yield from self._check_log(tx)
        yield self._check_clock(tx)
        yield from _check_work(tx)
        if not self.database.embedded:
            yield check_sites(tx)
        yield from _check_hosts(tx)
        if self.policies is None:
            return
        try:
            policy = self.policies.get_policy()
        except NoPolicyError as error:
            yield create_error_result("Policy", f"not valid, so everything is refused: {error}")
            return
        for warning in policy.warnings:
            yield create_warning_result("Policy", f"in force, but {warning}")
        for check in self.policy_checks:
            yield from check(tx, policy)

    def _check_log(self, tx: Transaction) -> Iterator[CheckResult]:
        if self.database.error:
            return  # _check_database() says why.
        try:
            change_log.check_newest_entry(tx)
        except change_log.LogAlteredError as error:
            yield create_error_result("Change log", error.public_message)
            return
        seq, digest = change_log.get_head(tx)
        yield create_ok_result(
            "Change log",
            f"{format_count(seq, 'entry', plural='entries')}, head {digest[:12] or 'none'}",
        )

    def _check_clock(self, tx: Transaction) -> CheckResult:
        seconds = self.clock() - tx.now / _SECOND
        if abs(seconds) <= _SKEW_SECONDS:
            return create_ok_result("Clock", "agrees with the database's")
        message = (
            f"is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the database's"
        )
        return create_error_result("Clock", f"{message}: check the time service of this machine")

    def _check_witnesses(self) -> Iterator[CheckResult]:
        entries_by_witness = self.count_unwitnessed()
        if not entries_by_witness:
            yield create_warning_result(
                "Witnesses",
                "none: set KEYTURN_WITNESSES, KEYTURN_WITNESS or KEYTURN_SYSLOG to detect a "
                "truncated change log",
            )
        problems = {
            one.name: one.problem for one in self.list_witness_states() if one.level != "ok"
        }
        for name, entries in entries_by_witness.items():
            message = "has all entries"
            if entries:
                message = f"lacks {format_count(entries, 'entry', plural='entries')}"
            yield (
                create_error_result(f"Witness {name}", problems[name])
                if name in problems
                else create_ok_result(f"Witness {name}", message)
            )

    def _check_spool(self) -> Iterator[CheckResult]:
        if self.spool is None:
            return
        if self.spool.exists() and self.spool.stat().st_size:
            yield create_error_result(
                "Spool",
                "has entries that could not be logged: they are added when the log can be written",
            )
        else:
            yield create_ok_result("Spool", "empty")

    def _check_keys(self) -> Iterator[CheckResult]:
        for subject, file in self.keys.items():
            if not file.exists():
                yield create_error_result(
                    subject, f"{file.name} is missing: restore it from its copy"
                )
                continue
            days = int((self.clock() - file.stat().st_mtime) // 86_400)
            age = f"{format_count(days, 'day')} old"
            yield (
                create_warning_result(subject, f"{age}: consider a new one")
                if days > _OLD_KEY_DAYS
                else create_ok_result(subject, age)
            )


def _check_work(tx: Transaction) -> Iterator[CheckResult]:
    counts = stats.count_open_work(tx)
    workers = leases.list_workers(tx)
    queued = f"{format_count(counts.queued, 'run')} queued"
    message = f"{queued}; busy workers: {', '.join(workers) or 'none'}"
    if counts.stalled:
        yield create_error_result(
            "Work", f"{format_count(counts.stalled, 'run')} without progress; {message}"
        )
    else:
        yield create_ok_result("Work", message)
    unknown = stats.count_unknown_outcomes(tx)
    if unknown:
        yield create_warning_result("Unknown outcomes", f"{unknown} need an owner to resolve them")
    unsent = f"{format_count(counts.undelivered, 'message')} to send"
    if counts.failed_deliveries:
        yield create_warning_result("Outbox", f"{unsent}, {counts.failed_deliveries} failed")
    else:
        yield create_ok_result("Outbox", unsent)


def check_sites(tx: Transaction) -> CheckResult:
    """Check that each site with waiting runs has a worker. Only for PostgreSQL."""
    unattended = procrastinate_queue.list_unattended_sites(tx, seconds=_UNATTENDED_SECONDS)
    if not unattended:
        return create_ok_result("Sites", "every site with waiting runs has a worker")
    sites = [
        f"{site.site} ({site.waiting} waiting, the first for {site.seconds} s)"
        for site in unattended
    ]
    options = " ".join(f"--site {site.site}" for site in unattended[:5])
    return create_error_result(
        "Sites", f"no worker at {_join_names(sites)}: run keyturn worker {options}"
    )


def _check_hosts(tx: Transaction) -> Iterator[CheckResult]:
    contacts = host_contacts.list_contacts(tx).values()
    changed = sorted(one.host for one in contacts if one.kind == "key")
    unreachable = sorted(one.host for one in contacts if one.kind == "unreachable")
    if changed:
        yield create_error_result(
            "Host keys",
            f"do not match the inventory on {_join_names(changed)}: verify them on the consoles",
        )
    if unreachable:
        yield create_warning_result(
            "Hosts", f"unreachable at the last contact: {_join_names(unreachable)}"
        )
    elif contacts:
        yield create_ok_result("Hosts", f"{len(contacts)} reachable at the last contact")


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
