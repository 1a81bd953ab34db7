"""A replay: the past, run through another policy. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from bot.db.history import PastRequest
from bot.policy import Policy, PolicyRequest, Ruling

_QUARTER_OF_AN_HOUR = 900 * 1_000_000


class ReplayOutcome(StrEnum):
    """What another policy would have made of a request. The value is how it is told."""

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
    """One request, and what would have become of it. approvals: how many, of whom in words.

    lost: who approved it and could not now. step_up: these would take a second factor, and did
    not. frozen: it was asked for in a freeze of the new policy.
    """

    request: PastRequest
    outcome: ReplayOutcome
    required_approvals: int = 0
    approvals_from: str = ""
    reason: str = ""
    lost_approvers: Sequence[str] = ()
    lacks_second_factor: bool = False
    was_frozen: bool = False

    @property
    def extra_approvals(self) -> int:
        """How many more approvals it would have taken."""
        return (
            self.required_approvals - self.request.needed
            if self.outcome is ReplayOutcome.MORE
            else 0
        )

    @property
    def description(self) -> str:
        """What would be different, and why."""
        taken = (
            f"{self.required_approvals} instead of {self.request.needed}, from "
            f"{self.approvals_from}"
        )
        if self.outcome is ReplayOutcome.LOST_APPROVALS:
            return (
                f"approved by {', '.join(self.lost_approvers)}, and it is up to "
                f"{self.approvals_from}"
            )
        if self.outcome in {ReplayOutcome.MORE, ReplayOutcome.FEWER}:
            return taken
        if self.outcome is ReplayOutcome.AT_ONCE:
            return f"0 approvals instead of {self.request.needed}"
        return self.reason


@dataclass(frozen=True)
class Replay:
    """Every verdict, the oldest request first. version: of the policy. people: those it has."""

    version: str
    requests: Sequence[ReplayedRequest]
    known_people: frozenset[str]

    def list_with_outcome(self, outcome: ReplayOutcome) -> list[ReplayedRequest]:
        return [one for one in self.requests if one.outcome is outcome]

    @property
    def outcome_counts(self) -> Mapping[ReplayOutcome, int]:
        return Counter(one.outcome for one in self.requests)

    @property
    def extra_approvals(self) -> int:
        """How many more approvals it would have taken in all."""
        return sum(one.extra_approvals for one in self.requests)

    def count_outcomes_by(
        self, get_key: Callable[[PastRequest], str]
    ) -> dict[str, Mapping[ReplayOutcome, int]]:
        """Count the fates for each runbook, or each asker, with the most changed first."""
        found: dict[str, Counter[ReplayOutcome]] = {}
        for one in self.requests:
            found.setdefault(get_key(one.request), Counter())[one.outcome] += 1
        changed = {
            name: sum(fates.values()) - fates[ReplayOutcome.SAME] for name, fates in found.items()
        }
        return {name: found[name] for name in sorted(found, key=lambda x: (-changed[x], x))}

    @property
    def unknown_requesters(self) -> Mapping[str, int]:
        """Who asked and is not among the people any more, and how often."""
        return Counter(
            one.request.requested_by
            for one in self.requests
            if one.request.requested_by not in self.known_people
        )

    @property
    def unknown_approvers(self) -> Mapping[str, int]:
        """Who approved and is not among the people any more, and how often."""
        keys = (key for one in self.requests for key in one.request.keys)
        return Counter(key for key in keys if key not in self.known_people)


def replay_requests(policy: Policy, requests: Iterable[PastRequest]) -> Replay:
    """Ask the policy about each request at the time when it was made."""
    judge = _CachedPolicy(policy)
    verdicts = [judge.replay_request(past) for past in requests]
    return Replay(policy.version, verdicts, frozenset(policy.organisation.people))


class _CachedPolicy:
    """Asks a policy, once where its rules see no difference."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rulings: dict[object, Ruling] = {}
        self._can_approve: dict[object, bool] = {}

    def replay_request(self, request: PastRequest) -> ReplayedRequest:
        gone = self._describe_missing_names(request)
        if gone:
            return ReplayedRequest(request, ReplayOutcome.GONE, reason=gone)
        frozen = bool(
            self._policy.describe_freeze(
                host=request.host, runbook=request.runbook, now=request.requested_at
            )
        )
        sight = self._build_cache_key(request, frozen=frozen)
        ruling = self._rulings.get(sight)
        if ruling is None:
            ruling = self._rulings[sight] = self._policy.get_request_ruling(
                _build_policy_request(request)
            )
        keys = [
            key for key in request.keys if self._may_approve_cached(key, sight, request, ruling)
        ]
        fate = self._compare_outcome(request, ruling, keys)
        approvals = ruling.required_approvals if ruling.allowed else 0
        return ReplayedRequest(
            request,
            fate,
            required_approvals=approvals,
            approvals_from=self._policy.describe_approver_groups(ruling.requirements)
            if approvals
            else "",
            reason="; ".join(ruling.policy_notes) or "no rule of the policy permits it",
            lost_approvers=[key for key in request.keys if key not in keys]
            if fate is ReplayOutcome.LOST_APPROVALS
            else (),
            lacks_second_factor=request.planned
            and bool(approvals)
            and ruling.requires_second_factor
            and not request.step_up,
            was_frozen=frozen and request.kind == "change",
        )

    def _build_cache_key(self, request: PastRequest, *, frozen: bool) -> object:
        """Return all of a request that the rules can see: what is the same, is answered the same.

        Of the time, that is the hour and the day where the hosts stand. No zone is off by less
        than a quarter of an hour.
        """
        mentioned = self._policy.mentions
        return (
            replace(
                _build_policy_request(request),
                now=0,
                is_first_success=request.novel or "first_time" not in mentioned,
            ),
            request.requested_at if "now" in mentioned else 0,
            request.requested_at // _QUARTER_OF_AN_HOUR if {"hour", "weekday"} & mentioned else 0,
            frozen,
        )

    def _describe_missing_names(self, request: PastRequest) -> str:
        if request.requested_by not in self._policy.organisation.people:
            return f"{request.requested_by} is not among the people any more"
        hosts = request.hosts or (request.host,)
        missing = [host for host in hosts if host not in self._policy.inventory.hosts]
        return f"{', '.join(missing)}: not in the inventory any more" if missing else ""

    def _compare_outcome(
        self, request: PastRequest, ruling: Ruling, counted_approvers: Sequence[str]
    ) -> ReplayOutcome:
        """Compare the ruling with what was. keys: whose approvals would count."""
        if request.refused or not ruling.allowed:
            return _REFUSAL_OUTCOMES[request.refused, ruling.allowed]
        # How many approvals it took then is known only of what got as far as a plan.
        if not request.planned or request.alone:
            return ReplayOutcome.SAME
        approved = len(request.keys) >= request.needed > 0
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
        question = (person, cache_key)
        if question not in self._can_approve:
            answer = self._policy.get_approval_ruling(
                person, _build_policy_request(request), ruling
            )
            self._can_approve[question] = ruling.allowed and answer.allowed
        return self._can_approve[question]


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
        is_first_success=request.novel,
        editors=request.editors,
    )


def summarise_replay(replay: Replay) -> str:
    """Say it in a line: `14 more approvals, 2 refused, 61 without waiting`."""
    said = [
        f"{replay.extra_approvals if fate is ReplayOutcome.MORE else count} "
        f"{_OUTCOME_LABELS.get(fate, fate.value)}"
        for fate in ReplayOutcome
        if fate is not ReplayOutcome.SAME and (count := replay.outcome_counts.get(fate, 0))
    ]
    return ", ".join(said) or "nothing would be different"


_OUTCOME_LABELS = {
    ReplayOutcome.LOST_APPROVALS: "with approvals that would not count",
    ReplayOutcome.GONE: "by people or on hosts that are gone",
}
