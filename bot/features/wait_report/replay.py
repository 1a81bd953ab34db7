"""Replay earlier requests against another policy. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from bot.db.history import PastRequest
from bot.model.times import MINUTE
from bot.policy import Policy, PolicyRequest, Ruling

_QUARTER_OF_AN_HOUR = 15 * MINUTE


class ReplayOutcome(StrEnum):
    """How another policy would have treated a request. The value is the text for people."""

    MORE = "more approvals"
    REFUSED = "refused"
    AT_ONCE = "without waiting"
    FEWER = "fewer approvals"
    LOST_APPROVALS = "approvals that would not count"
    ALLOWED = "no longer refused"
    GONE = "gone"
    SAME = "as it was"


# Refused then, allowed now.
_REFUSAL_OUTCOMES = {
    (True, False): ReplayOutcome.SAME,
    (True, True): ReplayOutcome.ALLOWED,
    (False, False): ReplayOutcome.REFUSED,
}


@dataclass(frozen=True)
class ReplayedRequest:
    """One request, and how the other policy would have treated it."""

    request: PastRequest
    outcome: ReplayOutcome
    required_approvals: int = 0
    approvals_from: str = ""
    """Whose approvals, in words."""
    reason: str = ""
    lost_approvers: Sequence[str] = ()
    """Who approved it and could not under the other policy."""
    lacks_second_factor: bool = False
    """The other policy requires a second factor, which the approvals did not have."""
    was_frozen: bool = False
    """It was requested during a freeze of the other policy."""

    @property
    def extra_approvals(self) -> int:
        """How many more approvals it would have needed."""
        return (
            self.required_approvals - self.request.needed
            if self.outcome is ReplayOutcome.MORE
            else 0
        )

    @property
    def description(self) -> str:
        """The difference, and the reason for it."""
        taken = (
            f"{self.required_approvals} instead of {self.request.needed}, from "
            f"{self.approvals_from}"
        )
        if self.outcome is ReplayOutcome.LOST_APPROVALS:
            return (
                f"approved by {', '.join(self.lost_approvers)}, but needs approval from "
                f"{self.approvals_from}"
            )
        if self.outcome in {ReplayOutcome.MORE, ReplayOutcome.FEWER}:
            return taken
        if self.outcome is ReplayOutcome.AT_ONCE:
            return f"0 approvals instead of {self.request.needed}"
        return self.reason


@dataclass(frozen=True)
class Replay:
    """All replayed requests, oldest first."""

    version: str
    """The version of the policy."""
    requests: Sequence[ReplayedRequest]
    known_people: frozenset[str]
    """The people of the policy."""

    def list_with_outcome(self, outcome: ReplayOutcome) -> list[ReplayedRequest]:
        return [one for one in self.requests if one.outcome is outcome]

    @property
    def outcome_counts(self) -> Mapping[ReplayOutcome, int]:
        return Counter(one.outcome for one in self.requests)

    @property
    def extra_approvals(self) -> int:
        """How many more approvals all requests would have needed."""
        return sum(one.extra_approvals for one in self.requests)

    def count_outcomes_by(
        self, get_key: Callable[[PastRequest], str]
    ) -> dict[str, Mapping[ReplayOutcome, int]]:
        """Count outcomes for each key, such as the runbook, with the most differences first."""
        found: dict[str, Counter[ReplayOutcome]] = {}
        for one in self.requests:
            found.setdefault(get_key(one.request), Counter())[one.outcome] += 1
        changed = {
            name: sum(counts.values()) - counts[ReplayOutcome.SAME]
            for name, counts in found.items()
        }
        return {name: found[name] for name in sorted(found, key=lambda x: (-changed[x], x))}

    @property
    def unknown_requesters(self) -> Mapping[str, int]:
        """Requesters who are not in the policy, and how many requests they made."""
        return Counter(
            one.request.requested_by
            for one in self.requests
            if one.request.requested_by not in self.known_people
        )

    @property
    def unknown_approvers(self) -> Mapping[str, int]:
        """Approvers who are not in the policy, and how often they approved."""
        keys = (key for one in self.requests for key in one.request.approvers)
        return Counter(key for key in keys if key not in self.known_people)


def replay_requests(policy: Policy, requests: Iterable[PastRequest]) -> Replay:
    """Evaluate the policy for each request at the time when it was made."""
    cached_policy = _CachedPolicy(policy)
    replayed = [cached_policy.replay_request(past) for past in requests]
    return Replay(policy.version, replayed, frozenset(policy.organisation.people))


class _CachedPolicy:
    """Evaluates a policy once for all requests that its rules cannot tell apart."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rulings: dict[object, Ruling] = {}
        self._can_approve: dict[object, bool] = {}

    def replay_request(self, request: PastRequest) -> ReplayedRequest:
        missing = self._describe_missing_names(request)
        if missing:
            return ReplayedRequest(request, ReplayOutcome.GONE, reason=missing)
        frozen = bool(
            self._policy.describe_freeze(
                [request.host], runbook=request.runbook, now=request.requested_at
            )
        )
        cache_key = self._build_cache_key(request, frozen=frozen)
        ruling = self._rulings.get(cache_key)
        if ruling is None:
            ruling = self._rulings[cache_key] = self._policy.get_request_ruling(
                _build_policy_request(request)
            )
        keys = [
            key
            for key in request.approvers
            if self._may_approve_cached(key, cache_key, request, ruling)
        ]
        outcome = self._compare_outcome(request, ruling, keys)
        approvals = ruling.required_approvals if ruling.allowed else 0
        return ReplayedRequest(
            request,
            outcome,
            required_approvals=approvals,
            approvals_from=self._policy.describe_approver_groups(ruling.requirements)
            if approvals
            else "",
            reason=ruling.refusal_reason,
            lost_approvers=[key for key in request.approvers if key not in keys]
            if outcome is ReplayOutcome.LOST_APPROVALS
            else (),
            lacks_second_factor=request.planned
            and bool(approvals)
            and ruling.requires_second_factor
            and not request.step_up,
            was_frozen=frozen and request.kind == "change",
        )

    def _build_cache_key(self, request: PastRequest, *, frozen: bool) -> object:
        """Return everything about a request that the rules can depend on.

        Of the time, that is the hour and weekday at the hosts. All time zones differ by multiples
        of a quarter of an hour.
        """
        mentioned = self._policy.mentions
        return (
            replace(
                _build_policy_request(request),
                now=0,
                is_first_success=request.is_first_success or "first_time" not in mentioned,
            ),
            request.requested_at if "now" in mentioned else 0,
            request.requested_at // _QUARTER_OF_AN_HOUR if {"hour", "weekday"} & mentioned else 0,
            frozen,
        )

    def _describe_missing_names(self, request: PastRequest) -> str:
        # Agents are not in the policy; the rulings say what they may.
        is_known = request.agent or request.requested_by in self._policy.organisation.people
        if not is_known:
            return f"{request.requested_by} is not in the policy any more"
        hosts = request.hosts or (request.host,)
        missing = [host for host in hosts if host not in self._policy.inventory.hosts]
        return f"{', '.join(missing)}: not in the inventory any more" if missing else ""

    def _compare_outcome(
        self, request: PastRequest, ruling: Ruling, counted_approvers: Sequence[str]
    ) -> ReplayOutcome:
        """Compare the ruling with the actual outcome."""
        if request.refused or not ruling.allowed:
            return _REFUSAL_OUTCOMES[request.refused, ruling.allowed]
        # How many approvals were needed then is known only of planned requests.
        if not request.planned or request.is_preapproved:
            return ReplayOutcome.SAME
        approved = len(request.approvers) >= request.needed > 0
        if ruling.required_approvals > request.needed:
            return ReplayOutcome.MORE
        if approved and not self._policy.is_met(ruling.requirements, counted_approvers):
            return ReplayOutcome.LOST_APPROVALS
        if ruling.required_approvals < request.needed:
            return ReplayOutcome.FEWER if ruling.required_approvals else ReplayOutcome.AT_ONCE
        return ReplayOutcome.SAME

    def _may_approve_cached(
        self, person: str, cache_key: object, request: PastRequest, ruling: Ruling
    ) -> bool:
        key = (person, cache_key)
        if key not in self._can_approve:
            answer = self._policy.get_approval_ruling(
                person, _build_policy_request(request), ruling
            )
            self._can_approve[key] = ruling.allowed and answer.allowed
        return self._can_approve[key]


def _build_policy_request(request: PastRequest) -> PolicyRequest:
    return PolicyRequest(
        runbook=request.runbook,
        kind=request.kind,
        host=request.host,
        source=request.source,
        requested_by=request.requested_by,
        reversible=request.reversible,
        hosts=request.hosts,
        now=request.requested_at,
        is_first_success=request.is_first_success,
        editors=request.editors,
        agent=request.agent,
    )


def summarise_replay(replay: Replay) -> str:
    """Summarise a replay: `14 more approvals, 2 refused, 61 without waiting`."""
    counts = [
        f"{replay.extra_approvals if outcome is ReplayOutcome.MORE else count} "
        f"{_OUTCOME_LABELS.get(outcome, outcome.value)}"
        for outcome in ReplayOutcome
        if outcome is not ReplayOutcome.SAME and (count := replay.outcome_counts.get(outcome, 0))
    ]
    return ", ".join(counts) or "no differences"


_OUTCOME_LABELS = {
    ReplayOutcome.LOST_APPROVALS: "with approvals that would not count",
    ReplayOutcome.GONE: "by people or on hosts that are gone",
}
