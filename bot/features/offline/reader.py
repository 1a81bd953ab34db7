"""Log what people did on enrolled hosts while Keyturn was down, from the record of each host.

A record that does not verify is logged as a finding, and never as a change by the people whom it
names: who has Keyturn's machine cannot write it, but who has the host can.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

from bot.audit import change_log, events
from bot.db.database import Transaction
from bot.features.offline.plan_file import PlanSigner, find_signer, parse_offline_plan
from bot.model.errors import InvalidRequestError
from bot.model.plan import ResolvedPlan
from bot.model.request_form import RequestSyntaxError, format_request, parse_values
from bot.model.times import DAY, HOUR, SECOND
from bot.policy import NoPolicyError, Policy
from bot.workflow.context import WorkflowContext
from connectors.errors import HostError
from connectors.inventory import Host
from connectors.run_signed import RecordedStep, SignedTexts, query_history

log = logging.getLogger(__name__)

_READ_EACH_SECONDS = 900.0
# Hosts forget plans a month after they expired.
_HISTORY_DAYS = 31
_MAX_PARALLEL_HOSTS = 8
# How long a step may take before it is logged that no one knows how it ended.
_LONGEST_STEP = HOUR


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
            with ThreadPoolExecutor(_MAX_PARALLEL_HOSTS, "read-offline") as pool:
                list(pool.map(partial(self._read_host, policy), hosts))

    def _read_host(self, policy: Policy, host: Host) -> None:
        if self._closing.is_set():
            return
        try:
            query = query_history(_HISTORY_DAYS)
            steps = self._context.fleet.query_with_changer(host.name, query)
        except HostError as error:
            log.warning("what people did on %s offline cannot be read: %s", host.name, error)
            return
        by_plan: dict[SignedTexts, list[RecordedStep]] = {}
        for step in steps:
            texts = SignedTexts(step.texts.document, step.texts.section)
            by_plan.setdefault(texts, []).append(step)
        try:
            for texts, of_plan in by_plan.items():
                self._record_plan(policy, host, texts, of_plan)
        except Exception:
            # One host must not keep the others from being read.
            log.exception("what people did on %s offline cannot be logged", host.name)

    def _record_plan(
        self, policy: Policy, host: Host, texts: SignedTexts, steps: Sequence[RecordedStep]
    ) -> None:
        """Log what was run of a plan, unless that is logged, or a step of it still runs."""
        # Signatures are verified before the database is locked.
        event, person = self._build_event(policy, host, texts, steps)
        with self._context.database.transaction() as tx:
            newest = max(step.began_at for step in steps) * SECOND
            if any(step.status is None for step in steps) and tx.now < newest + _LONGEST_STEP:
                return
            # Other processes read the same hosts.
            change_log.lock_log(tx)
            if not _is_logged(tx, event, host.name):
                change_log.append_entry(tx, event, host=host.name, person=person)

    def _build_event(
        self, policy: Policy, host: Host, texts: SignedTexts, steps: Sequence[RecordedStep]
    ) -> tuple[events.ChangedOffline | events.OfflineRecordInvalid, str]:
        """Return what to log, and the person who requested it; "" for a finding."""
        digest = hashlib.sha256(texts.document.encode()).hexdigest()
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
            steps={f"{step.action} {step.number}": [step.began_at, step.status] for step in steps},
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


def _is_logged(
    tx: Transaction, event: events.ChangedOffline | events.OfflineRecordInvalid, host: str
) -> bool:
    # JSON has lists instead of tuples.
    since = tx.now - (_HISTORY_DAYS + 1) * DAY * 2
    logged = change_log.list_entries_since(tx, event.kind, since)
    return any(entry.host == host and _has_same_facts(entry.event, event) for entry in logged)


def _has_same_facts(logged: events.Event, event: events.Event) -> bool:
    if isinstance(logged, events.ChangedOffline) and isinstance(event, events.ChangedOffline):
        return (logged.digest, dict(logged.steps)) == (event.digest, dict(event.steps))
    return logged.get_fact("digest") == event.get_fact("digest")


def build_duties(context: WorkflowContext, closing: Event) -> Sequence[Callable[[], object]]:
    return [OfflineReader(context, closing).read_hosts]
