"""An outlook: what would come of a request that nobody has made, area by area. Pure.

A check on hosts of several areas is one request, so there is one answer for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.model import host_patterns, request_form
from bot.model.request_form import NotUnderstood
from bot.policy import Policy, Request
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
    approvals: int = 0
    whose: str = ""
    approvers: Sequence[str] = ()
    says: Sequence[str] = ()
    reversible: bool = True
    views: bool = True
    """Whether the person may view such runs of others."""

    def sentences(self, *, wait: int | None = None, who: str = "You") -> list[str]:
        """Say it in plain sentences. wait: microseconds that it usually takes, if known."""
        whom = "you" if who == "You" else who
        unseen = [] if self.views else [f"Runs of others like this are not shown to {whom}."]
        return [*self._about_asking(wait, who), *unseen]

    def _about_asking(self, wait: int | None, who: str) -> list[str]:
        if not self.allowed:
            why = "; ".join(self.says) or "no rule of the policy allows it"
            return [f"No: {why}"]
        said = list(self.says)
        if not self.approvals:
            return ["Yes, at once.", *said]
        keys = "one approval" if self.approvals == 1 else f"{self.approvals} approvals"
        can = ", ".join(self.approvers) or "nobody, as the policy is now"
        usual: list[str] = []
        if wait is not None and wait >= _SECOND:
            usual = [f"That usually takes {format_wait(wait)}."]
        return [f"{who} may ask; it takes {keys} from {self.whose}: {can}.", *usual, *said]


def evaluate_request(policy: Policy, request: Request) -> Evaluation:
    """Look at one request with the policy's eyes."""
    ruling, views = policy.may_ask(request), policy.sees(request.asked_by, request)
    if not ruling.allowed or not ruling.approvals:
        return Evaluation(
            ruling.allowed, says=ruling.says, reversible=request.reversible, views=views
        )
    return Evaluation(
        allowed=True,
        approvals=ruling.approvals,
        whose=policy.whose(ruling.terms),
        approvers=[person.name for person in policy.approvers(request, ruling)],
        says=ruling.says,
        reversible=request.reversible,
        views=views,
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
class AreaAnswer:
    """What holds in one area, or in all that a check is for.

    frozen: why changes wait there now; "" if they do not.
    otherwise: what holds if a step turns out to have no undo, where that is something else.
    """

    area: str
    hosts: Sequence[str]
    prospect: Evaluation
    otherwise: Evaluation | None = None
    frozen: str = ""


@dataclass(frozen=True)
class Preview:
    """What somebody may have done. wait: microseconds that approvals usually take, if known."""

    person: str
    runbook: str
    answers: Sequence[AreaAnswer]
    wait: int | None = None

    @property
    def allowed(self) -> bool:
        return all(answer.prospect.allowed for answer in self.answers)

    @property
    def at_once(self) -> bool:
        """Whether it takes nobody's approval."""
        return not any(answer.prospect.approvals for answer in self.answers)

    def sentences(self, *, who: str = "You") -> list[str]:
        """Say it in plain sentences. who: how the person is spoken of."""
        said: list[str] = []
        for answer in self.answers:
            lead = f"On {', '.join(answer.hosts)} ({answer.area}): "
            first, *rest = _about(answer, who=who, wait=self.wait)
            said += [lead + first if len(self.answers) > 1 else first, *rest]
        return list(dict.fromkeys(said))

    @property
    def data(self) -> dict[str, Any]:
        """The outlook for JSON."""
        return {
            "person": self.person,
            "runbook": self.runbook,
            "allowed": self.allowed,
            "usual_wait_seconds": None if self.wait is None else round(self.wait / 1_000_000),
            "answers": [
                {
                    **vars(answer),
                    "prospect": vars(answer.prospect),
                    "otherwise": answer.otherwise and vars(answer.otherwise),
                }
                for answer in self.answers
            ],
        }


def parse_question(policy: Policy, typed: Sequence[str]) -> PreviewQuestion:
    """Understand `abusers clear lb1`, `… lb*`, `… @haproxy`, `… lb1,lb2` or `… lb1 lb2`.

    Words behind the hosts, such as the values of a whole request, are passed over. Raises
    NotUnderstood.
    """
    runbook, rest = request_form.find_runbook(typed)
    if not rest:
        raise NotUnderstood(f"on which host? Type it behind the words: {runbook.words} HOST")
    known = {host.name: host for host in policy.inventory}
    meant = [
        part
        for place, word in enumerate(rest)
        if place == 0 or word in known or host_patterns.is_group_part(word)
        for part in host_patterns.split_host_parts(word.removeprefix("host="))
    ]
    tag = request_form.list_form_fields(runbook)[0].tag
    fit = {name: host for name, host in known.items() if not tag or tag in host.tags}
    found = [name for word in meant for name in _hosts(word, policy.inventory, fit, tag)]
    return PreviewQuestion(runbook, tuple(dict.fromkeys(found)))


def _hosts(word: str, known: Inventory, fit: dict[str, Host], tag: str) -> list[str]:
    if word in known.hosts and word not in fit:
        listed = ", ".join(sorted(fit)) or "no host yet"
        raise NotUnderstood(f"{word} is not tagged {tag}; hosts that are: {listed}")
    found = host_patterns.resolve_host_part(word, {name: host.tags for name, host in fit.items()})
    if not found:
        try:
            return [known[word].name]
        except UnknownHostError as unknown:
            raise NotUnderstood(str(unknown)) from None
    return found


def preview_question(
    policy: Policy,
    asked: PreviewQuestion,
    *,
    person: str,
    door: str,
    now: int,
    novel: bool = True,
    wait: int | None = None,
) -> Preview:
    """Ask the rules, as often as it takes requests. novel: the person has never had it succeed."""
    runbook = asked.runbook
    areas: dict[str, list[str]] = {}
    for host in asked.hosts:
        area = "" if get_kind(runbook) == "check" else policy.area_of(host).name
        areas.setdefault(area, []).append(host)
    answers = [
        _answer(
            policy,
            Request(
                runbook=runbook.words,
                kind=get_kind(runbook),
                host=hosts[0],
                door=door,
                asked_by=person,
                reversible=get_kind(runbook) == "check" or bool(runbook.undo),
                hosts=tuple(hosts) if len(hosts) > 1 else (),
                now=now,
                novel=novel,
            ),
        )
        for hosts in areas.values()
    ]
    return Preview(person, runbook.words, answers, wait)


def _answer(policy: Policy, request: Request) -> AreaAnswer:
    hosts = request.hosts or (request.host,)
    area = policy.titles(sorted({policy.area_of(host).name for host in hosts}))
    seen = evaluate_request(policy, request)
    if request.kind == "check":
        return AreaAnswer(area, hosts, seen)
    lasting = evaluate_request(policy, replace(request, reversible=False))
    differs = replace(lasting, reversible=True) != seen
    return AreaAnswer(
        area,
        hosts,
        seen,
        otherwise=lasting if differs and request.reversible else None,
        frozen=policy.frozen(host=request.host, runbook=request.runbook, now=request.now),
    )


def _about(answer: AreaAnswer, *, who: str, wait: int | None) -> list[str]:
    said = answer.prospect.sentences(wait=wait, who=who)
    if answer.otherwise is not None:
        first = answer.otherwise.sentences(who=who)[0]
        named = first.startswith(who) and who != "You"
        plain = first if named else f"{first[:1].lower()}{first[1:]}"
        said.append(f"If a step cannot be undone: {plain}")
    if answer.frozen and answer.prospect.allowed:
        said.append(f"It would wait now: {answer.frozen}.")
    return said
