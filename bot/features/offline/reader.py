"""Log what people did on enrolled hosts while Keyturn was down, from the record of each host.

A record that does not verify is logged as a finding, and never as a change by the people whom it
names: who has Keyturn's machine cannot write it, but who has the host can.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TypeAlias

from bot.audit import change_log, events
from bot.db.database import Transaction
from bot.features.offline.plan_file import PlanSigner, find_signer, parse_offline_plan
from bot.model.errors import InvalidRequestError
from bot.model.plan import ResolvedPlan
from bot.model.request_form import RequestSyntaxError, format_request, parse_values
from bot.model.text import format_count
from bot.model.times import DAY, HOUR, SECOND
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext
from connectors.errors import HostError, OutputLimitError
from connectors.inventory import Host
from connectors.rows import OddRow, Rows
from connectors.run_signed import RecordedStep, SignedTexts, query_history

log = logging.getLogger(__name__)

_READ_EACH_SECONDS = 900.0
# Hosts forget plans a month after they expired.
_HISTORY_DAYS = 31
_MAX_PARALLEL_HOSTS = 8
# How long a step may take before it is logged that no one knows how it ended.
_LONGEST_STEP = HOUR

# What to log, and the person who requested it.
_Found: TypeAlias = tuple[events.ChangedOffline | events.OfflineRecordInvalid, str]
# The identity of an entry: host, digest, and how the steps ended.
_Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class _Known:
    """What is known before hosts are read."""

    policy: Policy
    now: int
    logged: Set[_Key]


class OfflineReader:
    """Reads the records of enrolled hosts, when the process starts and every 15 minutes."""

    def __init__(self, context: WorkflowContext, closing: Event) -> None:
        self._context, self._closing = context, closing
        self._due = 0.0

    def read_hosts(self) -> None:
        """Read every enrolled host that this process serves, if that is due."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _READ_EACH_SECONDS
        try:
            policy = self._context.policies.get_policy()
        except NoPolicyError:
            return
        sites = self._context.sites
        hosts = [
            host
            for host in policy.inventory
            if host.signed and host.changes and (sites is None or host.site in sites)
        ]
        if hosts:
            with self._context.database.reading() as tx:
                known = _Known(policy, tx.now, _list_logged(tx))
            with ThreadPoolExecutor(_MAX_PARALLEL_HOSTS, "read-offline") as pool:
                list(pool.map(partial(self._read_host, known), hosts))

    def _read_host(self, known: _Known, host: Host) -> None:
        if self._closing.is_set():
            return
        try:
            days, steps = self._query_record(host)
        except HostError as error:
            log.warning("what people did on %s offline cannot be read: %s", host.name, error)
            return
        try:
            found = [
                *self._list_changes(known, host, steps),
                *_list_findings(steps.odd),
                *_list_unread_days(days),
            ]
            self._log_new(known, host, found)
        except Exception:
            # One host must not keep the others from being read.
            log.exception("what people did on %s offline cannot be logged", host.name)

    def _query_record(self, host: Host) -> tuple[int, Rows[RecordedStep]]:
        """Return the record of the last days, and how many: fewer if it is too long.

        0 days, and no steps, if that of one day is too long. Raises HostError.
        """
        days = _HISTORY_DAYS
        while days:
            with suppress(OutputLimitError):
                query = query_history(days)
                return days, self._context.fleet.query_with_changer(host.name, query)
            days //= 2
        return 0, Rows([], [])

    def _log_new(self, known: _Known, host: Host, found: Sequence[_Found]) -> None:
        """Log what is not logged; the database is locked only if there is something."""
        if all(_make_key(host.name, event) in known.logged for event, _ in found):
            return
        with self._context.database.transaction() as tx:
            # Other processes read the same hosts.
            change_log.lock_log(tx)
            logged = _list_logged(tx)
            for event, person in found:
                if _make_key(host.name, event) not in logged:
                    change_log.append_entry(tx, event, host=host.name, person=person)

    def _list_changes(
        self, known: _Known, host: Host, steps: Iterable[RecordedStep]
    ) -> Iterator[_Found]:
        """Yield what to log of each plan, unless that is logged, or a step of it still runs."""
        by_plan: dict[SignedTexts, list[RecordedStep]] = {}
        for step in steps:
            texts = SignedTexts(step.texts.document, step.texts.section)
            by_plan.setdefault(texts, []).append(step)
        for texts, of_plan in by_plan.items():
            newest = max(step.began_at for step in of_plan) * SECOND
            if any(step.status is None for step in of_plan) and known.now < newest + _LONGEST_STEP:
                continue
            # What was verified once stays so when one of its people has left.
            key = (host.name, _hash_text(texts.document), _format_ends(_list_ends(of_plan)))
            if key not in known.logged:
                yield self._build_event(known.policy, host, texts, of_plan)

    def _build_event(
        self, policy: Policy, host: Host, texts: SignedTexts, steps: Sequence[RecordedStep]
    ) -> _Found:
        """Return what to log, and the person who requested it; "" for a finding."""
        digest = _hash_text(texts.document)
        try:
            plan = parse_offline_plan(texts)
            signers = _verify_steps(policy, host, plan, steps)
        except InvalidRequestError as error:
            return events.OfflineRecordInvalid(digest=digest, reason=str(error)), ""
        event = events.ChangedOffline(
            digest=digest,
            reason=plan.reason,
            request=self._format_request(plan),
            runbook=plan.runbook,
            values=plan.values,
            plan=plan.log_facts,
            signers=tuple(one.person for one in signers),
            signing_keys=tuple(one.key.fingerprint for one in signers),
            signatures=tuple(one.signature for one in signers),
            steps=_list_ends(steps),
            occurred_at=max(step.began_at for step in steps) * SECOND,
        )
        people = event.signers
        return event, plan.requested_by if plan.requested_by in people else people[0]

    def _format_request(self, plan: ResolvedPlan) -> str:
        known = self._context.runbooks.get(plan.runbook)
        try:
            return format_request(parse_values(known, plan.values)) if known else plan.runbook
        except RequestSyntaxError:
            return plan.runbook


def _verify_steps(
    policy: Policy, host: Host, plan: ResolvedPlan, steps: Sequence[RecordedStep]
) -> Sequence[PlanSigner]:
    """Return who signed the plan of these steps, each once. Raises InvalidRequestError."""
    section = plan.sections[0]
    if (section.host, section.fingerprint) != (host.name, host.fingerprint):
        raise InvalidRequestError(f"its plan is for {section.host}, or for another host key")
    signers: dict[str, PlanSigner] = {}
    for step in steps:
        if not 1 <= step.number <= len(section.steps):
            raise InvalidRequestError(f"its plan has no step {step.number}")
        if not step.texts.signatures:
            raise InvalidRequestError(f"no one signed {step.action} of step {step.number}")
        for signature in step.texts.signatures:
            one = find_signer(policy, signature, plan)
            signers.setdefault(one.person, one)
    return [*signers.values()]


def _list_findings(odd: Sequence[OddRow]) -> Sequence[_Found]:
    """Return the finding about the parts of a record that cannot be read, if there are any."""
    if not odd:
        return []
    first = f"“{odd[0].text[:200]}”: {odd[0].reason}"
    count = f"{len(odd)} parts" if len(odd) > 1 else "a part"
    reason = f"{count} of the record of the host cannot be read, {first}"
    digest = _hash_text("\n".join(row.text for row in odd))
    return [(events.OfflineRecordInvalid(digest=digest, reason=reason), "")]


def _list_unread_days(days: int) -> Sequence[_Found]:
    """Return the finding about a record that is too long to be read as a whole."""
    if days == _HISTORY_DAYS:
        return []
    read = f"only that of the last {format_count(days, 'day')} was" if days else "none of it was"
    reason = (
        f"the record of the host is longer than Keyturn reads, so {read} read. Look at it on the "
        "host, and find out who runs so many steps there"
    )
    return [(events.OfflineRecordInvalid(digest=_hash_text(reason), reason=reason), "")]


def _list_logged(tx: Transaction) -> Set[_Key]:
    since = tx.now - (_HISTORY_DAYS + 1) * DAY * 2
    kinds = (events.ChangedOffline.kind, events.OfflineRecordInvalid.kind)
    return {
        _make_key(entry.host, entry.event)
        for kind in kinds
        for entry in change_log.list_entries_since(tx, kind, since)
    }


def _make_key(host: str, event: events.Event) -> _Key:
    ends = _format_ends(event.steps) if isinstance(event, events.ChangedOffline) else ""
    return host, str(event.get_fact("digest")), ends


def _list_ends(steps: Iterable[RecordedStep]) -> Mapping[str, Sequence[int | None]]:
    """Return by action and number of each step when it began, and how it ended."""
    return {f"{step.action} {step.number}": [step.began_at, step.status] for step in steps}


def _format_ends(ends: Mapping[str, object]) -> str:
    return json.dumps(dict(ends), sort_keys=True)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def build_duties(context: WorkflowContext, closing: Event) -> Sequence[Callable[[], object]]:
    return [OfflineReader(context, closing).read_hosts]
