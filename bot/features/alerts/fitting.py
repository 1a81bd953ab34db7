"""Find the checks and changes that fit an alert, for someone who may request them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.features.alerts.messages import Alert
from bot.model.agents import AgentOrigin
from bot.model.plain_request import PlainRequest, Suggestion, find_suggestions, select_nearest
from bot.model.request_form import is_value_valid, list_form_fields
from bot.policy import Policy, PolicyRequest
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

SOURCE = "alert"
# What changed on a host is worth reading for each alert.
_ALWAYS = "host changes"
# A field that accepts it is not only for addresses.
_ANY_WORD = "example"
MAX_HOSTS, MAX_CHECKS, MAX_PLANS = 2, 3, 2

IsAllowed = Callable[[Suggestion], bool]


@dataclass(frozen=True)
class Requester:
    """As whom checks are requested."""

    id: str
    agent: AgentOrigin | None = None
    """None for a person."""


def find_fitting(
    alert: Alert, policy: Policy, hosts: Sequence[str], *, kind: str, is_allowed: IsAllowed
) -> list[Suggestion]:
    """Return the runbooks that fit, best first. kind: check or change."""
    named = [word for name, value in alert.values.items() for word in (name, value)]
    words = [*named, *alert.words, *alert.addresses]
    known = policy.inventory.hosts
    fitting: list[Suggestion] = []
    for host in hosts[:MAX_HOSTS]:
        found = (
            _keep_named_values(one, alert)
            for one in find_suggestions(PlainRequest([host, *words], [host]), known)
            if get_kind(one.runbook) == kind
        )
        usable = [one for one in found if one is not None and is_allowed(one)]
        fitting += select_nearest(usable)
    fitting.sort(key=lambda one: -one.score)
    return fitting


def find_checks(
    alert: Alert, policy: Policy, hosts: Sequence[str], is_allowed: IsAllowed
) -> list[Suggestion]:
    """Return the checks to run: those that fit, and what changed on each host."""
    fitting = find_fitting(alert, policy, hosts, kind="check", is_allowed=is_allowed)
    runbook = load_catalogue().get(_ALWAYS)
    always = [Suggestion(runbook, {"host": host}, 0) for host in hosts] if runbook else []
    general = [one for one in always if is_allowed(one)][:MAX_HOSTS]
    best = [one for one in fitting if one.runbook is not runbook]
    return [*best[: MAX_CHECKS - len(general[:1])], *general][:MAX_CHECKS]


def find_plans(
    alert: Alert, policy: Policy, hosts: Sequence[str], is_allowed: IsAllowed
) -> list[Suggestion]:
    """Return the changes to suggest, the plainest first: those for which the alert has a value."""
    fitting = find_fitting(alert, policy, hosts, kind="change", is_allowed=is_allowed)
    filled = [one for one in fitting if len(one.values) > 1]
    return sorted(filled, key=lambda one: len(one.runbook.words.split()))[:MAX_PLANS]


def is_free_to_request(
    policy: Policy, suggestion: Suggestion, requester: Requester, *, now: int
) -> bool:
    """Return whether the requester may request a check that needs no one else."""
    ruling = policy.get_request_ruling(
        replace(_build_request(suggestion, requester, SOURCE, now), agent=requester.agent)
    )
    needs_others = ruling.required_approvals or ruling.requires_signed_request
    return ruling.allowed and not needs_others


def may_request(policy: Policy, suggestion: Suggestion, person: str, *, now: int) -> bool:
    """Return whether a person may request it in chat, with approvals or without."""
    request = _build_request(suggestion, Requester(person), "slack", now)
    return policy.get_request_ruling(request).allowed


def _build_request(
    suggestion: Suggestion, requester: Requester, source: str, now: int
) -> PolicyRequest:
    return PolicyRequest(
        runbook=suggestion.runbook.words,
        kind=get_kind(suggestion.runbook),
        host=suggestion.values["host"],
        source=source,
        requested_by=requester.id,
        now=now,
    )


def _keep_named_values(suggestion: Suggestion, alert: Alert) -> Suggestion | None:
    """Return the suggestion with the values that the alert names as such; None if one is missing.

    Any other word of an alert is no value: it would be a guess.
    """
    runbook: type[AnyRunbook] = suggestion.runbook
    values: Mapping[str, str] = {
        name: value
        for name, value in suggestion.values.items()
        if name == "host"
        or alert.values.get(name) == value
        or (value in alert.addresses and not is_value_valid(runbook, name, _ANY_WORD))
    }
    is_complete = "host" in values and all(
        field.name in values for field in list_form_fields(runbook) if field.required
    )
    return replace(suggestion, values=values) if is_complete else None
