"""Plan a change offline, sign it, and have its host run it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Event, Thread

from bot.audit import change_log
from bot.db import runs
from bot.features.offline.plan_file import OfflineRefused, PlanFile, PlanSigner, find_signer
from bot.features.offline.workspace import Workspace
from bot.model.errors import InvalidRequestError
from bot.model.plan import ResolvedPlan
from bot.model.request_form import find_runbook, parse_request_for_hosts, parse_values
from bot.model.run import RequestOrigin, RequestTerms, Run, State
from bot.model.times import SECOND, format_utc
from bot.policy import Policy
from bot.queries.approval_count import count_approvals, get_ruling
from bot.queries.policy_result import is_plan_outdated
from bot.queries.signatures import check_plan_signature, find_passkey_signature
from bot.signing.assertion import parse_assertion
from bot.workflow.approvals import get_decision_refusal
from bot.workflow.requests import check_has_reason, check_has_ticket
from bot.workflow.submit_plan import submit_plan
from connectors.run_signed import SignedStep, SignedTexts
from connectors.step_status import MarkerState, StepStatus
from runbooks import AnyRunbook, Change

_ORIGIN = RequestOrigin("cli")
_PRINT_SECONDS = 0.2


def _get_now() -> int:
    return time.time_ns() // 1000


def plan_change(
    workspace: Workspace, words: Sequence[str], *, person: str, reason: str
) -> tuple[PlanFile, ResolvedPlan]:
    """Read the host, and return the file that people sign, and the plan with its notes.

    Raises InvalidRequestError, OfflineRefused and HostError.
    """
    runbook = _parse_change(workspace.policy, words)
    terms = RequestTerms(person, _ORIGIN, reason, plan_only=True)
    run = workspace.service.request_run(runbook, terms)
    workspace.service.advancer.advance_run(run.id)
    run = workspace.read_run(run.id)
    if run.plan is None or run.state is not State.PLANNED:
        raise OfflineRefused(run.summary)
    with workspace.context.database.reading() as tx:
        ruling = get_ruling(tx, workspace.policy, run)[1]
    check_has_reason(run, ruling)
    check_has_ticket(run, ruling)
    plan = replace(run.plan, run=0)
    if len(plan.sections) != 1:
        hosts = ", ".join(plan.steps_by_host)
        raise InvalidRequestError(f"it has steps on {hosts}: offline, a plan is for one host")
    return PlanFile(SignedTexts(plan.document, plan.sections[0].text)), plan


def _parse_change(policy: Policy, words: Sequence[str]) -> AnyRunbook:
    kind, rest = find_runbook(words)
    pattern, requests = parse_request_for_hosts(kind, rest, policy.inventory.tags)
    if pattern or not issubclass(kind, Change):
        raise InvalidRequestError(
            "offline, you can change one host at a time: name a change of it"
        )
    _check_enrolled(policy, requests[0].target)
    return requests[0]


def _check_enrolled(policy: Policy, host: str) -> None:
    if not policy.inventory[host].signed:
        raise OfflineRefused(
            f"{host} is not enrolled, so it would not check who signed a plan: only a running "
            "Keyturn can change it"
        )


def list_signers(policy: Policy, file: PlanFile, plan: ResolvedPlan) -> Sequence[PlanSigner]:
    """Return who signed it, the requester first. Raises InvalidRequestError for other keys."""
    signers = [find_signer(policy, one, plan) for one in file.texts.signatures]
    return sorted(signers, key=lambda one: one.person != plan.requested_by)


def check_can_sign(policy: Policy, file: PlanFile, person: str) -> ResolvedPlan:
    """Return the plan of a file, if this person can sign it now.

    Raises InvalidRequestError and OfflineRefused.
    """
    plan = file.plan
    if any(one.person == person for one in list_signers(policy, file, plan)):
        raise OfflineRefused(f"{person} has signed this plan already")
    return plan


def check_in_time(plan: ResolvedPlan) -> None:
    """Raise OfflineRefused if the plan has expired, by the clock of this machine."""
    if _get_now() >= plan.expires_at:
        raise OfflineRefused(f"the plan expired at {format_utc(plan.expires_at)}: plan it again")


def read_passkey(policy: Policy, file: PlanFile, person: str, passkey: str) -> str:
    """Return the signature that the signing page showed.

    Raises InvalidRequestError and OfflineRefused.
    """
    check_in_time(file.plan)
    parts = passkey.split(".")
    if len(parts) != 3:
        raise InvalidRequestError("this is no signature of the signing page: copy all of it")
    return find_passkey_signature(policy, person, parse_assertion(*parts), file.plan)


def add_signature(policy: Policy, file: PlanFile, person: str, signature: str) -> PlanFile:
    """Return the file with a signature. Raises InvalidRequestError if it is not the person's."""
    check_plan_signature(policy, person, signature, file.plan)
    return file.add_signature(signature)


def run_plan(
    workspace: Workspace, file: PlanFile, *, say: Callable[[str], None]
) -> tuple[Run, PlanFile]:
    """Have the host run a plan as far as it gets; return the run, and the file with what happened.

    say: is called with what happens, while it does.

    Raises:
        InvalidRequestError: It is not a plan of this version, or a signature is not valid.
        OfflineRefused: It is not signed as the policy requires, its host is not enrolled, it has
            expired, or it has run already.
        HostError: The record of the host cannot be read.
    """
    plan, policy = file.plan, workspace.policy
    host = plan.sections[0].host
    _check_enrolled(policy, host)
    check_in_time(plan)
    signers = list_signers(policy, file, plan)
    run = _record_request(workspace, plan, host)
    _record_signatures(workspace, run, signers)
    _check_never_ran(workspace, file, host)
    said: list[str] = []

    def keep(sentence: str) -> None:
        said.append(sentence)
        say(sentence)

    with _FollowedLog(workspace, run.id, keep):
        workspace.service.advancer.advance_run(run.id)
    return workspace.read_run(run.id), replace(file, events=(*file.events, *said))


def _record_request(workspace: Workspace, plan: ResolvedPlan, host: str) -> Run:
    """Return the request of a plan that people signed, which needs their signatures."""
    known = workspace.context.runbooks.get(plan.runbook)
    if known is None:
        raise InvalidRequestError(f"this version has no runbook {plan.runbook}: plan it again")
    runbook = parse_values(known, plan.values)
    if runbook.target != host:
        raise InvalidRequestError(f"the plan is for {host}, and its request for {runbook.target}")
    terms = RequestTerms(plan.requested_by, _ORIGIN, plan.reason)
    requested = workspace.service.request_run(runbook, terms)
    with workspace.context.database.transaction() as tx:
        run = runs.lock_run(tx, requested.id)
        if not run.is_ended:
            run = submit_plan(workspace.context, tx, run, plan)
        is_outdated = is_plan_outdated(tx, workspace.policy, run)
    if is_outdated:
        raise OfflineRefused(
            f"the policy, or what it says of {host}, has changed since the plan was made: plan it "
            "again"
        )
    if run.is_ended:
        raise OfflineRefused(run.summary)
    return run


def _record_signatures(workspace: Workspace, run: Run, signers: Sequence[PlanSigner]) -> None:
    """Count the signatures as a request and approvals. Raises OfflineRefused if any lacks."""
    service, context = workspace.service, workspace.context
    for one in signers:
        with context.database.reading() as tx:
            current = runs.get_run(tx, run.id)
            ruling = get_ruling(tx, workspace.policy, current)[1]
            no = get_decision_refusal(tx, workspace.policy, current, one.person)
        if current.state is not State.PENDING:
            break
        if one.person == run.requested_by:
            if ruling.requires_signed_request:
                service.sign_request(
                    run.id, person=one.person, digest=run.digest, signature=one.signature
                )
        elif not no:
            service.approve_run(
                run.id,
                person=one.person,
                digest=run.digest,
                reason="signed offline",
                signature=one.signature,
            )
    if workspace.read_run(run.id).state is not State.QUEUED:
        raise OfflineRefused(_describe_missing(workspace, run, signers))


def _describe_missing(workspace: Workspace, run: Run, signers: Sequence[PlanSigner]) -> str:
    policy = workspace.policy
    with workspace.context.database.reading() as tx:
        counted = count_approvals(tx, policy, runs.get_run(tx, run.id))
    requirements = counted.ruling.requirements
    missing = [f"{run.requested_by}, who requested it"] if counted.lacks_signed_request else []
    if counted.missing_approvals:
        missing.append(
            f"{counted.missing_approvals} of {policy.describe_approver_groups(requirements)}"
        )
    people = ", ".join(one.person for one in signers) or "no one"
    return (
        f"it has to be signed by {' and by '.join(missing)}, and is signed by {people}: "
        "keyturn offline sign"
    )


def _check_never_ran(workspace: Workspace, file: PlanFile, host: str) -> None:
    """Raise OfflineRefused if the host has begun this plan before. Raises HostError."""
    query = SignedStep(1, file.texts).query_record()
    status = workspace.context.fleet.query_with_changer(host, query)
    if status.state is not MarkerState.WAITING:
        raise OfflineRefused(f"{host} has run this plan already: {_describe_first_step(status)}")


def _describe_first_step(status: StepStatus) -> str:
    """Return what a host recorded of the first step of a plan."""
    if status.state is MarkerState.GIVEN_UP:
        return "step 1 was given up before it began"
    began = format_utc((status.started_at or 0) * SECOND)
    is_known = status.status is not None
    end = f"ended with status {status.status}" if is_known else "has not ended, as far as it knows"
    return f"step 1 began at {began} and {end}"


class _FollowedLog:
    """Passes on what is logged of a run while it runs."""

    def __init__(self, workspace: Workspace, run: int, say: Callable[[str], None]) -> None:
        self._workspace, self._run, self._say = workspace, run, say
        self._done = Event()
        with workspace.context.database.reading() as tx:
            self._seen, _ = change_log.get_head(tx)
        self._thread = Thread(target=self._follow, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _follow(self) -> None:
        while True:
            is_last = self._done.wait(_PRINT_SECONDS)
            for sentence in self._list_new():
                self._say(sentence)
            if is_last:
                return

    def _list_new(self) -> Iterator[str]:
        policy = self._workspace.policy
        with self._workspace.context.database.reading() as tx:
            entries = change_log.list_entries_after(tx, self._seen)
        for entry in entries:
            self._seen = entry.seq
            if entry.run == self._run:
                who = policy.get_person_name(entry.person) if entry.person else ""
                shown = entry.event.describe(who, entry.host, policy.get_person_name)
                detail = f": {shown.detail}" if shown.detail else ""
                yield f"{format_utc(entry.at)}  {shown.title}{detail}"
