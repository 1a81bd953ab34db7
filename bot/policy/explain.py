"""An outlook: what would come of a request that nobody has made, area by area. Pure.

A check on hosts of several areas is one request, so there is one answer for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.model import host_patterns, request_form
from bot.model.request_form import RequestSyntaxError
from bot.policy import Policy, PolicyRequest
from connectors.errors import UnknownHostError
from connectors.inventory import Host, Inventory
from runbooks import AnyRunbook
from runbooks._catalogue import get_kind

_SECOND = 1_000_000


@dataclass(frozen=True)
class Evaluation:
    """What the policy says to a request.

    approvals: how many, of whom in words (whose) and by name (approvers). says: the rules that
    apply, in their own words. reversible: what was supposed of the request's steps.
    """

    allowed: bool
    required_approvals: int = 0
    approvals_from: str = ""
    approvers: Sequence[str] = ()
    policy_notes: Sequence[str] = ()
    reversible: bool = True
    can_view: bool = True
    """Whether the person may view such runs of others."""

    def describe(self, *, usual_wait: int | None = None, subject: str = "You") -> list[str]:
        """Say it in plain sentences. wait: microseconds that it usually takes, if known."""
        whom = "you" if subject == "You" else subject
        unseen = [] if self.can_view else [f"Runs of others like this are not shown to {whom}."]
        return [*self._describe_request(usual_wait, subject), *unseen]

    def _describe_request(self, usual_wait: int | None, subject: str) -> list[str]:
        if not self.allowed:
            why = "; ".join(self.policy_notes) or "no rule of the policy allows it"
            return [f"No: {why}"]
        said = list(self.policy_notes)
        if not self.required_approvals:
            return ["Yes, at once.", *said]
        keys = (
            "one approval"
            if self.required_approvals == 1
            else f"{self.required_approvals} approvals"
        )
        can = ", ".join(self.approvers) or "nobody, as the policy is now"
        usual: list[str] = []
        if usual_wait is not None and usual_wait >= _SECOND:
            usual = [f"That usually takes {format_wait(usual_wait)}."]
        return [
            f"{subject} may ask; it takes {keys} from {self.approvals_from}: {can}.",
            *usual,
            *said,
        ]


def evaluate_request(policy: Policy, request: PolicyRequest) -> Evaluation:
    """Look at one request with the policy's eyes."""
    ruling, views = (
        policy.get_request_ruling(request),
        policy.can_view(request.requested_by, request),
    )
    if not ruling.allowed or not ruling.required_approvals:
        return Evaluation(
            ruling.allowed,
            policy_notes=ruling.policy_notes,
            reversible=request.reversible,
            can_view=views,
        )
    return Evaluation(
        allowed=True,
        required_approvals=ruling.required_approvals,
        approvals_from=policy.describe_approver_groups(ruling.requirements),
        approvers=[person.name for person in policy.list_approvers(request, ruling)],
        policy_notes=ruling.policy_notes,
        reversible=request.reversible,
        can_view=views,
    )


def format_wait(microseconds: int) -> str:
    """Return a span as people say it: 40 s, 7 min, 2 h 5 min."""
    seconds = round(microseconds / _SECOND)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


@dataclass(frozen=True)
class PreviewQuestion:
    """Which runbook, on which hosts."""

    runbook: type[AnyRunbook]
    hosts: Sequence[str]


@dataclass(frozen=True)
class AreaEvaluation:
    """What holds in one area, or in all that a check is for.

    frozen: why changes wait there now; "" if they do not.
    otherwise: what holds if a step turns out to have no undo, where that is something else.
    """

    area: str
    hosts: Sequence[str]
    evaluation: Evaluation
    if_irreversible: Evaluation | None = None
    freeze: str = ""


@dataclass(frozen=True)
class Preview:
    """What somebody may have done. wait: microseconds that approvals usually take, if known."""

    person: str
    runbook: str
    areas: Sequence[AreaEvaluation]
    usual_wait: int | None = None

    @property
    def allowed(self) -> bool:
        return all(answer.evaluation.allowed for answer in self.areas)

    @property
    def needs_no_approval(self) -> bool:
        """Whether it takes nobody's approval."""
        return not any(answer.evaluation.required_approvals for answer in self.areas)

    def describe(self, *, subject: str = "You") -> list[str]:
        """Say it in plain sentences. who: how the person is spoken of."""
        said: list[str] = []
        for answer in self.areas:
            lead = f"On {', '.join(answer.hosts)} ({answer.area}): "
            first, *rest = _describe_area(answer, subject=subject, usual_wait=self.usual_wait)
            said += [lead + first if len(self.areas) > 1 else first, *rest]
        return list(dict.fromkeys(said))

    @property
    def to_data(self) -> dict[str, Any]:
        """The outlook for JSON."""
        return {
            "person": self.person,
            "runbook": self.runbook,
            "allowed": self.allowed,
            "usual_wait_seconds": None
            if self.usual_wait is None
            else round(self.usual_wait / 1_000_000),
            "answers": [
                {
                    "area": answer.area,
                    "hosts": answer.hosts,
                    "frozen": answer.freeze,
                    "prospect": vars(answer.evaluation),
                    "otherwise": answer.if_irreversible and vars(answer.if_irreversible),
                }
                for answer in self.areas
            ],
        }


def parse_preview_question(policy: Policy, words: Sequence[str]) -> PreviewQuestion:
    """Understand `abusers clear lb1`, `… lb*`, `… @haproxy`, `… lb1,lb2` or `… lb1 lb2`.

    Words behind the hosts, such as the values of a whole request, are passed over. Raises
    NotUnderstood.
    """
    runbook, rest = request_form.find_runbook(words)
    if not rest:
        raise RequestSyntaxError(f"on which host? Type it behind the words: {runbook.words} HOST")
    known = {host.name: host for host in policy.inventory}
    meant = [
        part
        for place, word in enumerate(rest)
        if place == 0 or word in known or host_patterns.is_group_part(word)
        for part in host_patterns.split_host_parts(word.removeprefix("host="))
    ]
    tag = request_form.list_form_fields(runbook)[0].tag
    fit = {name: host for name, host in known.items() if not tag or tag in host.tags}
    found = [name for word in meant for name in _resolve_hosts(word, policy.inventory, fit, tag)]
    return PreviewQuestion(runbook, tuple(dict.fromkeys(found)))


def _resolve_hosts(
    word: str, inventory: Inventory, suitable_hosts: dict[str, Host], tag: str
) -> list[str]:
    if word in inventory.hosts and word not in suitable_hosts:
        listed = ", ".join(sorted(suitable_hosts)) or "no host yet"
        raise RequestSyntaxError(f"{word} is not tagged {tag}; hosts that are: {listed}")
    found = host_patterns.resolve_host_part(
        word, {name: host.tags for name, host in suitable_hosts.items()}
    )
    if not found:
        try:
            return [inventory[word].name]
        except UnknownHostError as unknown:
            raise RequestSyntaxError(str(unknown)) from None
    return found


def evaluate_preview(
    policy: Policy,
    question: PreviewQuestion,
    *,
    person: str,
    source: str,
    now: int,
    is_first_success: bool = True,
    usual_wait: int | None = None,
) -> Preview:
    """Ask the rules, as often as it takes requests. novel: the person has never had it succeed."""
    runbook = question.runbook
    areas: dict[str, list[str]] = {}
    for host in question.hosts:
        area = "" if get_kind(runbook) == "check" else policy.get_area(host).name
        areas.setdefault(area, []).append(host)
    answers = [
        _evaluate_area(
            policy,
            PolicyRequest(
                runbook=runbook.words,
                kind=get_kind(runbook),
                host=hosts[0],
                source=source,
                requested_by=person,
                reversible=get_kind(runbook) == "check" or bool(runbook.undo),
                hosts=tuple(hosts) if len(hosts) > 1 else (),
                now=now,
                is_first_success=is_first_success,
            ),
        )
        for hosts in areas.values()
    ]
    return Preview(person, runbook.words, answers, usual_wait)


def _evaluate_area(policy: Policy, request: PolicyRequest) -> AreaEvaluation:
    hosts = request.hosts or (request.host,)
    area = policy.join_area_titles(sorted({policy.get_area(host).name for host in hosts}))
    seen = evaluate_request(policy, request)
    if request.kind == "check":
        return AreaEvaluation(area, hosts, seen)
    lasting = evaluate_request(policy, replace(request, reversible=False))
    differs = replace(lasting, reversible=True) != seen
    return AreaEvaluation(
        area,
        hosts,
        seen,
        if_irreversible=lasting if differs and request.reversible else None,
        freeze=policy.describe_freeze(host=request.host, runbook=request.runbook, now=request.now),
    )


def _describe_area(answer: AreaEvaluation, *, subject: str, usual_wait: int | None) -> list[str]:
    said = answer.evaluation.describe(usual_wait=usual_wait, subject=subject)
    if answer.if_irreversible is not None:
        first = answer.if_irreversible.describe(subject=subject)[0]
        named = first.startswith(subject) and subject != "You"
        plain = first if named else f"{first[:1].lower()}{first[1:]}"
        said.append(f"If a step cannot be undone: {plain}")
    if answer.freeze and answer.evaluation.allowed:
        said.append(f"It would wait now: {answer.freeze}.")
    return said
