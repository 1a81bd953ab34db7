"""Preview what the policy would decide about a request, area by area. Pure.

A check on hosts of several areas is one request, so it has one answer for all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.model import host_patterns, request_form
from bot.model.agents import AgentOrigin
from bot.model.request_form import RequestSyntaxError
from bot.model.text import format_count, format_sentence
from bot.model.times import SECOND
from bot.policy import Policy, PolicyRequest
from bot.policy.cedar import NO_PERMIT
from connectors.errors import UnknownHostError
from connectors.inventory import Host, Inventory
from runbooks import AnyRunbook
from runbooks._catalogue import get_kind

NO_APPROVER = "no one under the current policy"
_LOWER_BOUND = (
    "A rule depends on the redundancy that the plan leaves: it may require more, or refuse."
)
_SEVERAL_AREAS = "The hosts are in areas with different owners: request each area separately."


@dataclass(frozen=True)
class Evaluation:
    """The policy's decision about a request."""

    allowed: bool
    required_approvals: int = 0
    approvals_from: str = ""
    """Whose approvals count, in words: `the owners of the edge`."""
    approvers: Sequence[str] = ()
    """The names of the people who can approve."""
    policy_notes: Sequence[str] = ()
    """The descriptions of the rules that apply."""
    reversible: bool = True
    """Whether every step was assumed to have an undo."""
    can_view: bool = True
    """Whether the person can view such runs of others."""
    requires_ticket: bool = False
    """Whether the request must name an approved change ticket."""
    requires_signature: bool = False
    """Whether each approval must be a signature over the plan."""
    requires_signed_request: bool = False
    """Whether the requester must sign the plan first."""
    required_witnesses: int = 0
    """How many witnesses must have cosigned the change log before anything is sent."""
    is_lower_bound: bool = False
    """Whether the plan, which is not known yet, may make the rules require more or refuse."""

    @property
    def terms(self) -> tuple[object, ...]:
        """Whether the request is allowed, and whose approvals it needs: the first sentence."""
        if not self.allowed:
            return (False, *self.policy_notes)
        needed = self.required_approvals
        whose = (self.approvals_from, *self.approvers) if needed else ()
        return (True, needed, self.is_lower_bound, *whose)

    def describe(self, *, usual_wait: int | None = None, subject: str = "You") -> list[str]:
        """Return the decision in sentences.

        Args:
            usual_wait: How long approvals usually take, in microseconds, if known.
            subject: The person's name, or `You`.
        """
        unseen = [] if self.can_view else [f"{subject} cannot view such runs of other people."]
        ticket = ["The request names an approved change ticket."] if self.requires_ticket else []
        bound = [_LOWER_BOUND] if self.is_lower_bound else []
        signed = (
            [describe_signing(subject, of_request=self.requires_signed_request)]
            if self.requires_signature
            else []
        )
        known = [*self._describe_request(usual_wait), *bound, *signed]
        return [*known, *ticket, *self._describe_witnesses(), *unseen]

    def _describe_witnesses(self) -> list[str]:
        if not self.allowed or not self.required_witnesses:
            return []
        count = format_count(self.required_witnesses, "witness", plural="witnesses")
        return [f"The change log is cosigned by {count} before anything is sent."]

    def _describe_request(self, usual_wait: int | None) -> list[str]:
        if not self.allowed:
            reason = "; ".join(self.policy_notes) or NO_PERMIT
            return [f"Not allowed: {reason}"]
        if not self.required_approvals:
            known = "Runs immediately, no approval needed."
            if self.is_lower_bound:
                known = "Needs no approval, at least until its plan is known."
            return [known, *self.policy_notes]
        approvals = format_approvals(self.required_approvals)
        if self.is_lower_bound:
            approvals = f"at least {approvals}"
        approvers = ", ".join(self.approvers) or NO_APPROVER
        usual: list[str] = []
        if usual_wait is not None and usual_wait >= SECOND:
            usual = [f"Typical wait: {format_wait(usual_wait)}."]
        return [
            f"Needs {approvals} from {self.approvals_from}: {approvers}.",
            *usual,
            *self.policy_notes,
        ]


def describe_signing(subject: str, *, of_request: bool) -> str:
    """Return who signs a plan whose approvals are signatures. subject: the requester.

    of_request: whether the requester has to sign it first.
    """
    if not of_request:
        return "Approvers sign the plan."
    sign = "sign" if subject == "You" else "signs"
    return f"{subject} {sign} the plan first, and then the approvers."


def format_approvals(number: int) -> str:
    """Return `1 approval` or `2 approvals`."""
    return "1 approval" if number == 1 else f"{number} approvals"


def evaluate_request(policy: Policy, request: PolicyRequest) -> Evaluation:
    """Return what the policy decides about one request."""
    ruling = policy.get_request_ruling(request)
    notes = ruling.policy_notes
    if unknown_duty := policy.describe_unknown_duty(request, ruling):
        refusal = () if ruling.allowed else (ruling.refusal_reason,)
        notes = (*(refusal or notes), format_sentence(unknown_duty))
    can_view = _can_view(policy, request)
    if not ruling.allowed or not ruling.required_approvals:
        return Evaluation(
            ruling.allowed,
            policy_notes=notes,
            reversible=request.reversible,
            can_view=can_view,
            requires_ticket=ruling.requires_ticket,
            required_witnesses=ruling.requirements.required_witnesses,
        )
    return Evaluation(
        allowed=True,
        required_approvals=ruling.required_approvals,
        approvals_from=policy.describe_approver_groups(ruling.requirements),
        approvers=[person.name for person in policy.list_approvers(request, ruling)],
        policy_notes=notes,
        reversible=request.reversible,
        can_view=can_view,
        requires_ticket=ruling.requires_ticket,
        requires_signature=ruling.requires_signature,
        requires_signed_request=ruling.requires_signed_request,
        required_witnesses=ruling.requirements.required_witnesses,
    )


def _evaluate_with_plan(policy: Policy, request: PolicyRequest) -> Evaluation:
    """Return the least that the policy requires, whatever redundancy the plan leaves."""
    variants = [
        evaluate_request(policy, replace(request, margin=margin))
        for margin in policy.list_possible_margins()
    ]
    allowed = [one for one in variants if one.allowed]
    if not allowed:
        return variants[-1]
    differ = any(one != variants[-1] for one in variants)
    least = min(reversed(allowed), key=lambda one: one.required_approvals)
    return replace(least, is_lower_bound=differ)


def describe_ending_stop(stop: str) -> str:
    """Return what becomes of a request while everything is stopped. stop: by whom and why."""
    return f"{stop}. A request now ends without a command."


def _can_view(policy: Policy, request: PolicyRequest) -> bool:
    if request.agent is None:
        return policy.can_view(request.requested_by, request)
    rights = policy.get_agent_view_rights(request.requested_by, request.agent.behalf)
    return all(
        rights.can_view(host=host, runbook=request.runbook, kind=request.kind)
        for host in request.hosts or [request.host]
    )


def format_wait(microseconds: int) -> str:
    """Return a duration rounded for people: 40 s, 7 min, 2 h 5 min."""
    seconds = round(microseconds / SECOND)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


@dataclass(frozen=True)
class PreviewQuestion:
    """A runbook and hosts to preview a request for."""

    runbook: type[AnyRunbook]
    hosts: Sequence[str]
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values by field, as far as they are known."""
    agent: AgentOrigin | None = None
    """For whom it is requested, if an agent does."""


@dataclass(frozen=True)
class AreaEvaluation:
    """The decision for one area, or for all areas of a check."""

    area: str
    """The title of the area, or several titles joined by `and`."""
    hosts: Sequence[str]
    evaluation: Evaluation
    if_irreversible: Evaluation | None = None
    """The decision if a step has no undo, where it differs."""
    freeze: str = ""
    """The freeze that holds changes there now, in words; "" without one."""
    grant: str = ""
    """The standing grant that replaces the approval, in a sentence; "" without one."""
    possible_grant: str = ""
    """The standing grant that replaces the approval if the plan leaves enough redundancy."""
    request: PolicyRequest | None = None
    """The request that was evaluated."""


@dataclass(frozen=True)
class Preview:
    """What a request of one person would need."""

    person: str
    runbook: str
    areas: Sequence[AreaEvaluation]
    usual_wait: int | None = None
    """How long approvals usually take, in microseconds, if known."""
    stop: str = ""
    """Who stopped everything, and why; "" if nothing is stopped."""

    @property
    def allowed(self) -> bool:
        return all(answer.evaluation.allowed for answer in self.areas)

    def describe(self, *, subject: str = "You") -> list[str]:
        """Return the preview in sentences. subject: the person's name, or `You`."""
        if self.stop:
            return [describe_ending_stop(self.stop)]
        sentences = [_SEVERAL_AREAS] if len(self.areas) > 1 else []
        for area in self.areas:
            lead = f"On {', '.join(area.hosts)} ({area.area}): "
            first, *rest = _describe_area(area, subject=subject, usual_wait=self.usual_wait)
            sentences += [lead + first if len(self.areas) > 1 else first, *rest]
        return list(dict.fromkeys(sentences))

    @property
    def to_data(self) -> dict[str, Any]:
        """The preview for JSON."""
        return {
            "person": self.person,
            "runbook": self.runbook,
            "allowed": self.allowed,
            "stop": self.stop,
            "usual_wait_seconds": None
            if self.usual_wait is None
            else round(self.usual_wait / SECOND),
            "answers": [
                {
                    "area": answer.area,
                    "hosts": answer.hosts,
                    "freeze": answer.freeze,
                    "grant": answer.grant,
                    "evaluation": vars(answer.evaluation),
                    "if_irreversible": answer.if_irreversible and vars(answer.if_irreversible),
                }
                for answer in self.areas
            ],
        }


def parse_preview_question(policy: Policy, words: Sequence[str]) -> PreviewQuestion:
    """Parse `abusers clear lb1`, `… lb*`, `… @haproxy`, `… lb1,lb2` or `… lb1 lb2`.

    Values are known if the words are a complete request.

    Raises:
        RequestSyntaxError: There is no such runbook or host, or no host is given.
    """
    runbook, rest = request_form.find_runbook(words)
    if not rest:
        raise RequestSyntaxError(f"the host is missing: type {runbook.words} HOST")
    known = {host.name: host for host in policy.inventory}
    host_words = [
        part
        for index, word in enumerate(rest)
        if index == 0 or word in known or host_patterns.is_group_part(word)
        for part in host_patterns.split_host_parts(word.removeprefix("host="))
    ]
    tag = request_form.list_form_fields(runbook)[0].tag
    suitable = {name: host for name, host in known.items() if not tag or tag in host.tags}
    hosts = [
        name
        for word in host_words
        for name in _resolve_hosts(word, policy.inventory, suitable, tag)
    ]
    return PreviewQuestion(runbook, tuple(dict.fromkeys(hosts)), _parse_values(runbook, rest))


def _parse_values(runbook: type[AnyRunbook], words: Sequence[str]) -> dict[str, str]:
    """Return the values of a complete request; none of an incomplete one."""
    try:
        return request_form.get_field_texts(request_form.parse_request(runbook, words))
    except RequestSyntaxError:
        return {}


def _resolve_hosts(
    word: str, inventory: Inventory, suitable_hosts: dict[str, Host], tag: str
) -> list[str]:
    if word in inventory.hosts and word not in suitable_hosts:
        listed = ", ".join(sorted(suitable_hosts)) or "none"
        raise RequestSyntaxError(f"{word} is not tagged {tag}; hosts with this tag: {listed}")
    matches = host_patterns.resolve_host_part(
        word, {name: host.tags for name, host in suitable_hosts.items()}
    )
    if not matches:
        try:
            return [inventory[word].name]
        except UnknownHostError as error:
            raise RequestSyntaxError(str(error)) from None
    return matches


def evaluate_preview(
    policy: Policy,
    question: PreviewQuestion,
    *,
    person: str,
    source: str,
    now: int,
) -> Preview:
    """Evaluate the requests that the question takes: one for a check, else one for each area.

    It is for an installation without a database, where nothing is granted or stopped.
    """
    runbook = question.runbook
    answers = [
        evaluate_area(
            policy,
            PolicyRequest(
                runbook=runbook.words,
                kind=get_kind(runbook),
                host=hosts[0],
                source=source,
                requested_by=person,
                hosts=tuple(hosts) if len(hosts) > 1 else (),
                now=now,
                agent=question.agent,
            ),
            can_be_undone=bool(runbook.undo),
        )
        for hosts in group_hosts(policy, question)
    ]
    return Preview(person, runbook.words, answers)


def group_hosts(policy: Policy, question: PreviewQuestion) -> list[list[str]]:
    """Return the hosts of each request that the question takes."""
    areas: dict[str, list[str]] = {}
    for host in question.hosts:
        area = "" if get_kind(question.runbook) == "check" else policy.get_area(host).name
        areas.setdefault(area, []).append(host)
    return [*areas.values()]


def evaluate_area(
    policy: Policy, request: PolicyRequest, *, can_be_undone: bool
) -> AreaEvaluation:
    """Evaluate a request as it is made, without a plan, and as far as is known with its plan.

    A check changes nothing: it waits for no approval, whatever the rules say.

    can_be_undone: whether the steps of the runbook usually have an undo.
    """
    hosts = request.hosts or (request.host,)
    area = policy.join_area_titles(sorted({policy.get_area(host).name for host in hosts}))
    if request.kind == "check":
        evaluation = evaluate_request(policy, request)
        if evaluation.allowed:
            evaluation = Evaluation(
                allowed=True,
                policy_notes=evaluation.policy_notes,
                can_view=evaluation.can_view,
                requires_ticket=evaluation.requires_ticket,
            )
        return AreaEvaluation(area, hosts, evaluation, request=request)
    request = replace(request, reversible=can_be_undone)
    evaluation = _evaluate_with_plan(policy, request)
    irreversible = _evaluate_with_plan(policy, replace(request, reversible=False))
    differs = replace(irreversible, reversible=True) != evaluation
    return AreaEvaluation(
        area,
        hosts,
        evaluation,
        if_irreversible=irreversible if differs and request.reversible else None,
        freeze=policy.describe_freeze(hosts, runbook=request.runbook, now=request.now),
        request=request,
    )


def _describe_area(area: AreaEvaluation, *, subject: str, usual_wait: int | None) -> list[str]:
    sentences = area.evaluation.describe(usual_wait=usual_wait, subject=subject)
    is_held = area.freeze and area.evaluation.allowed
    if area.grant:
        sentences = [area.grant]
    elif area.possible_grant:
        sentences.append(area.possible_grant)
    elif is_held and not area.evaluation.required_approvals:
        sentences[0] = "Needs no approval."
        if area.evaluation.is_lower_bound:
            sentences[0] = "Needs no approval, at least until its plan is known."
    irreversible = area.if_irreversible
    # Of a granted request the sentence above says nothing of approvals.
    if irreversible and (area.grant or irreversible.terms != area.evaluation.terms):
        first = irreversible.describe(subject=subject)[0]
        sentences.append(f"If a step is irreversible: {first[:1].lower()}{first[1:]}")
    if is_held:
        sentences.append(f"Currently on hold: {area.freeze}.")
    return sentences
