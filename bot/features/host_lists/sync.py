"""Read the sources of hosts on a timer, and propose what differs. Nothing is changed by itself."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bot.audit import change_log, events
from bot.audit.inclusion import list_vouched_entries
from bot.db.database import Database, Transaction
from bot.feature import ServerContext, ServerPart
from bot.features.host_lists.actions import append_proposal
from bot.features.host_lists.changes import (
    MAX_HOSTS,
    HostChange,
    check_changes,
    compute_change,
    compute_digest,
    compute_removal,
    get_place,
    list_areas,
)
from bot.features.host_lists.sources import (
    HostSource,
    Reading,
    SourceError,
    SourceHost,
    build_listed,
    load_sources,
    read_source,
)
from bot.features.host_lists.state import read_lists
from bot.features.host_lists.writing import write_confirmed_lists
from bot.model.check_result import CheckResult, create_error_result, create_ok_result
from bot.model.errors import InvalidRequestError
from bot.model.text import escape_to_one_line, format_count, join_names
from bot.model.times import DAY
from bot.policy import NoPolicyError, Policy, PolicySource
from bot.policy.loader import describe_validation_error
from bot.web.deps import ComponentHealth
from connectors.inventory import Host

log = logging.getLogger(__name__)

_SUBJECT = "Sources of hosts"
_NEW_LIST = "its source proposes another list now"
# A source of fewer hosts can lose all but one; a larger one at most half at a time.
_FEW = 3
_REPEAT = DAY
"""After which a problem that persists has another entry, in microseconds."""


@dataclass(frozen=True)
class Proposal:
    """What a source proposes: a list for each group of areas."""

    lists: Sequence[Sequence[HostChange]]
    remarks: Sequence[str]
    """Why some of its hosts are not in them."""
    problem: str = ""
    """Why a whole list is missing."""


def compute_proposal(policy: Policy, source: HostSource, reading: Reading) -> Proposal:
    """Return what differs between a source and the inventory.

    Raises SourceError if the answer looks like half of it.
    """
    hosts, remarks = policy.inventory.hosts, [*reading.remarks]
    followed = {name for name, host in hosts.items() if host.source == source.name}
    gone = sorted(followed - {*reading.hosts} - reading.left_out)
    if len(gone) > max(_FEW, len(followed) // 2):
        raise SourceError(
            f"{len(gone)} of its {len(followed)} hosts are missing in its answer: nothing is "
            "proposed. If they are really gone, remove them by a list of your own"
        )
    changes: list[HostChange] = []
    places = {get_place(one): one.name for one in policy.inventory}
    for name, one in reading.hosts.items():
        known = hosts.get(name)
        if problem := _find_problem(policy, source, known, one):
            remarks.append(f"{name}: {problem}")
            continue
        place = (one.fields["address"].lower(), one.fields["port"], None)
        if known is None and (other := places.setdefault(place, name)) != name:
            remarks.append(f"{name}: {other} has its address and port already")
            continue
        change = compute_change(known, name, build_listed(one, is_new=known is None))
        changes += [change] if change.after else []
    changes += [compute_removal(hosts[name]) for name in gone]
    lists: list[Sequence[HostChange]] = []
    problem = ""
    for group in _group(policy, changes):
        try:
            check_changes(policy, group)
            lists.append(group)
        except InvalidRequestError as error:
            # Such as the removal of a host through which others are reached.
            problem = f"{format_count(len(group), 'change')} not proposed: {error}"
    return Proposal(lists, remarks, problem)


def _find_problem(policy: Policy, source: HostSource, known: Host | None, one: SourceHost) -> str:
    """Return why a host of a source is not proposed; "" if it may be."""
    if known is None and not source.host_ca:
        return "not in the inventory, and its key is not known: enrol it, or set host_ca"
    if known is not None and known.source != source.name:
        whose = f"follows {known.source}" if known.source else "has no `source`"
        return f"its entry in the inventory {whose}, so it does not follow {source.name}"
    if one.fields["area"] not in policy.organisation.areas:
        return f"area {one.fields['area']} is not in areas.yaml"
    present = known.model_dump(mode="json", exclude_none=True) if known else one.new_fields
    try:
        Host.model_validate({**present, **one.fields, "name": one.name})
    except ValidationError as error:
        return escape_to_one_line(describe_validation_error(error))
    return ""


def _group(policy: Policy, changes: Sequence[HostChange]) -> Iterator[Sequence[HostChange]]:
    """Yield the changes by the areas that they concern, whose owners confirm them."""
    groups: dict[tuple[str, ...], list[HostChange]] = {}
    for one in changes:
        groups.setdefault(tuple(list_areas(policy, [one])), []).append(one)
    for _, group in sorted(groups.items()):
        ordered = sorted(group, key=lambda one: one.name)
        for first in range(0, len(ordered), MAX_HOSTS):
            yield ordered[first : first + MAX_HOSTS]


class HostSourceSync:
    """Reads the sources that are due in one process; whichever comes first proposes a list.

    file: of the sources. directory: of the policy.
    """

    def __init__(
        self, database: Database, policies: PolicySource, directory: Path, file: Path | None
    ) -> None:
        self._database, self._policies = database, policies
        self._directory, self._file = directory, file
        self._due: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self._unwritten: Mapping[int, str] = {}

    def run(self) -> None:
        """Write the lists that are confirmed, and read the sources that are due."""
        try:
            policy = self._policies.get_policy()
        except NoPolicyError:
            return
        self._unwritten = write_confirmed_lists(self._database, self._policies, self._directory)
        try:
            sources = load_sources(self._file)
            self._problems.pop("", None)
        except (SourceError, NoPolicyError) as error:
            self._problems[""] = escape_to_one_line(str(error))
            return
        for name in {*self._problems} - {*sources, ""}:
            del self._problems[name]
        for source in sources.values():
            if time.monotonic() >= self._due.get(source.name, 0):
                self._due[source.name] = time.monotonic() + source.every * 60
                self.read(policy, source)

    def read(self, policy: Policy, source: HostSource) -> None:
        """Read a source now, and propose what differs."""
        try:
            reading = read_source(source)
            found = compute_proposal(policy, source, reading)
        except SourceError as error:
            problem = escape_to_one_line(str(error))[:500]
            log.warning("source %s of hosts: %s", source.name, problem)
            self._problems[source.name] = problem
            with self._database.transaction() as tx:
                _log_reading(tx, events.HostSourceRead(source=source.name, problem=problem))
            return
        problem = escape_to_one_line(found.problem)[:500]
        self._problems = {**self._problems, source.name: problem}
        with self._database.transaction() as tx:
            change_log.lock_log(tx)
            _log_reading(
                tx,
                events.HostSourceRead(
                    source=source.name,
                    hosts=len(reading.hosts),
                    problem=problem,
                    remarks=tuple(found.remarks[:50]),
                ),
            )
            propose_lists(tx, policy, source.name, found.lists)

    def describe_health(self) -> ComponentHealth:
        """Return what does not work now, for people."""
        problems = [
            *(
                f"{name or 'the file'}: {text}"
                for name, text in sorted(self._problems.items())
                if text
            ),
            *(f"list {number}: {text}" for number, text in self._unwritten.items()),
        ]
        return ComponentHealth("; ".join(problems) or "no problem", is_broken=bool(problems))


def propose_lists(
    tx: Transaction, policy: Policy, source: str, lists: Sequence[Sequence[HostChange]]
) -> None:
    """Propose the lists of a source that are not proposed yet, and end those that differ.

    A list that people withdrew is not proposed again while it is the same. The log is locked.
    """
    known = [one for one in read_lists(tx) if one.source == source]
    wanted = {compute_digest(source, changes): changes for changes in lists}
    for one in known:
        if one.state == "open" and one.digest not in wanted:
            ended = events.HostListWithdrawn(list=one.number, digest=one.digest, reason=_NEW_LIST)
            change_log.append_entry(tx, ended)
    settled = {
        one.digest
        for one in known
        if one.state in {"open", "confirmed"} or (one.state == "withdrawn" and one.ended_by)
    }
    for digest, changes in wanted.items():
        if digest not in settled:
            append_proposal(tx, policy, changes, source=source, person="")


def _log_reading(tx: Transaction, event: events.HostSourceRead) -> None:
    """Log a reading with another result than before; a problem again once a day."""
    entries = change_log.list_entries_since(tx, event.kind, tx.now - 30 * DAY)
    last = next((one for one in entries if one.event.get_fact("source") == event.source), None)
    is_old = last is not None and bool(event.problem) and tx.now - last.at > _REPEAT
    if last is None or last.event != event or is_old:
        change_log.append_entry(tx, event)


def check_host_lists(tx: Transaction, policy: Policy) -> Iterator[CheckResult]:
    """Check that the sources were read whole, and that confirmed lists are written."""
    del policy
    newest: dict[str, events.HostSourceRead] = {}
    entries = change_log.list_entries_since(tx, events.HostSourceRead.kind, tx.now - 30 * DAY)
    for entry in sorted(list_vouched_entries(tx, entries), key=lambda one: one.seq):
        if isinstance(entry.event, events.HostSourceRead):
            newest[entry.event.source] = entry.event
    for name, event in sorted(newest.items()):
        left = f"; not used: {format_count(len(event.remarks), 'host')}" if event.remarks else ""
        yield (
            create_error_result(_SUBJECT, f"{name}: {event.problem}")
            if event.problem
            else create_ok_result(_SUBJECT, f"{name}: {format_count(event.hosts, 'host')}{left}")
        )
    waiting = [str(one.number) for one in read_lists(tx) if one.state == "confirmed"]
    if waiting:
        yield create_error_result(
            "Lists of hosts",
            f"{join_names(waiting)} confirmed and not written: run `keyturn host-list write` with "
            "a login that can write to the policy directory",
        )


def build_server_part(context: ServerContext) -> ServerPart:
    settings = context.settings
    sync = HostSourceSync(
        context.database, context.policies, settings.policy, settings.host_sources
    )
    return ServerPart(duties=[sync.run], health_checks={"lists of hosts": sync.describe_health})
