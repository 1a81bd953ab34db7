"""A replay: the past, run through another policy. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from bot.db.history import PastRequest
from bot.policy import Policy, Request, Ruling

_QUARTER = 900 * 1_000_000


class ReplayOutcome(StrEnum):
    """What another policy would have made of a request. The value is how it is told."""

    MORE = "more approvals"
    REFUSED = "refused"
    AT_ONCE = "without waiting"
    FEWER = "fewer approvals"
    LOST = "approvals that would not count"
    ALLOWED = "no longer refused"
    GONE = "gone"
    SAME = "as it was"


# Refused then, allowed now.
_REFUSALS = {
    (True, False): ReplayOutcome.SAME,
    (True, True): ReplayOutcome.ALLOWED,
    (False, False): ReplayOutcome.REFUSED,
}


@dataclass(frozen=True)
class Verdict:
    """One request, and what would have become of it. approvals: how many, of whom in words.

    lost: who approved it and could not now. step_up: these would take a second factor, and did
    not. frozen: it was asked for in a freeze of the new policy.
    """

    past: PastRequest
    fate: ReplayOutcome
    approvals: int = 0
    whose: str = ""
    why: str = ""
    lost: Sequence[str] = ()
    step_up: bool = False
    frozen: bool = False

    @property
    def extra(self) -> int:
        """How many more approvals it would have taken."""
        return self.approvals - self.past.needed if self.fate is ReplayOutcome.MORE else 0

    @property
    def words(self) -> str:
        """What would be different, and why."""
        taken = f"{self.approvals} instead of {self.past.needed}, from {self.whose}"
        if self.fate is ReplayOutcome.LOST:
            return f"approved by {', '.join(self.lost)}, and it is up to {self.whose}"
        if self.fate in {ReplayOutcome.MORE, ReplayOutcome.FEWER}:
            return taken
        if self.fate is ReplayOutcome.AT_ONCE:
            return f"0 approvals instead of {self.past.needed}"
        return self.why


@dataclass(frozen=True)
class Replay:
    """Every verdict, the oldest request first. version: of the policy. people: those it has."""

    version: str
    verdicts: Sequence[Verdict]
    people: frozenset[str]

    def of(self, fate: ReplayOutcome) -> list[Verdict]:
        return [one for one in self.verdicts if one.fate is fate]

    @property
    def counts(self) -> Mapping[ReplayOutcome, int]:
        return Counter(one.fate for one in self.verdicts)

    @property
    def extra(self) -> int:
        """How many more approvals it would have taken in all."""
        return sum(one.extra for one in self.verdicts)

    def by(self, trait: Callable[[PastRequest], str]) -> dict[str, Mapping[ReplayOutcome, int]]:
        """Count the fates for each runbook, or each asker, with the most changed first."""
        found: dict[str, Counter[ReplayOutcome]] = {}
        for one in self.verdicts:
            found.setdefault(trait(one.past), Counter())[one.fate] += 1
        changed = {
            name: sum(fates.values()) - fates[ReplayOutcome.SAME] for name, fates in found.items()
        }
        return {name: found[name] for name in sorted(found, key=lambda x: (-changed[x], x))}

    @property
    def gone_askers(self) -> Mapping[str, int]:
        """Who asked and is not among the people any more, and how often."""
        return Counter(
            one.past.asked_by for one in self.verdicts if one.past.asked_by not in self.people
        )

    @property
    def gone_approvers(self) -> Mapping[str, int]:
        """Who approved and is not among the people any more, and how often."""
        keys = (key for one in self.verdicts for key in one.past.keys)
        return Counter(key for key in keys if key not in self.people)


def replay_requests(policy: Policy, pasts: Iterable[PastRequest]) -> Replay:
    """Ask the policy about each request at the time when it was made."""
    judge = _Judge(policy)
    verdicts = [judge.verdict(past) for past in pasts]
    return Replay(policy.version, verdicts, frozenset(policy.household.people))


class _Judge:
    """Asks a policy, once where its rules see no difference."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._asked: dict[object, Ruling] = {}
        self._approved: dict[object, bool] = {}

    def verdict(self, past: PastRequest) -> Verdict:
        gone = self._gone(past)
        if gone:
            return Verdict(past, ReplayOutcome.GONE, why=gone)
        frozen = bool(self._policy.frozen(host=past.host, runbook=past.words, now=past.asked))
        sight = self._sight(past, frozen=frozen)
        ruling = self._asked.get(sight)
        if ruling is None:
            ruling = self._asked[sight] = self._policy.may_ask(_request(past))
        keys = [key for key in past.keys if self._may_approve(key, sight, past, ruling)]
        fate = self._fate(past, ruling, keys)
        approvals = ruling.approvals if ruling.allowed else 0
        return Verdict(
            past,
            fate,
            approvals=approvals,
            whose=self._policy.whose(ruling.terms) if approvals else "",
            why="; ".join(ruling.says) or "no rule of the policy allows it",
            lost=[key for key in past.keys if key not in keys]
            if fate is ReplayOutcome.LOST
            else (),
            step_up=past.planned and bool(approvals) and ruling.step_up and not past.step_up,
            frozen=frozen and past.kind == "change",
        )

    def _sight(self, past: PastRequest, *, frozen: bool) -> object:
        """Return all of a request that the rules can see: what is the same, is answered the same.

        Of the time, that is the hour and the day where the hosts stand. No zone is off by less
        than a quarter of an hour.
        """
        mentioned = self._policy.mentioned
        return (
            replace(_request(past), now=0, novel=past.novel or "novel" not in mentioned),
            past.asked if "now" in mentioned else 0,
            past.asked // _QUARTER if {"hour", "weekday"} & mentioned else 0,
            frozen,
        )

    def _gone(self, past: PastRequest) -> str:
        if past.asked_by not in self._policy.household.people:
            return f"{past.asked_by} is not among the people any more"
        hosts = past.hosts or (past.host,)
        missing = [host for host in hosts if host not in self._policy.inventory.hosts]
        return f"{', '.join(missing)}: not in the inventory any more" if missing else ""

    def _fate(self, past: PastRequest, ruling: Ruling, keys: Sequence[str]) -> ReplayOutcome:
        """Compare the ruling with what was. keys: whose approvals would count."""
        if past.refused or not ruling.allowed:
            return _REFUSALS[past.refused, ruling.allowed]
        # How many approvals it took then is known only of what got as far as a plan.
        if not past.planned or past.alone:
            return ReplayOutcome.SAME
        approved = len(past.keys) >= past.needed > 0
        if ruling.approvals > past.needed:
            return ReplayOutcome.MORE
        if approved and not self._policy.met(ruling.terms, keys):
            return ReplayOutcome.LOST
        if ruling.approvals < past.needed:
            return ReplayOutcome.FEWER if ruling.approvals else ReplayOutcome.AT_ONCE
        return ReplayOutcome.SAME

    def _may_approve(self, key: str, sight: object, past: PastRequest, ruling: Ruling) -> bool:
        question = (key, sight)
        if question not in self._approved:
            answer = self._policy.may_approve(key, _request(past), ruling)
            self._approved[question] = ruling.allowed and answer.allowed
        return self._approved[question]


def _request(past: PastRequest) -> Request:
    return Request(
        runbook=past.words,
        kind=past.kind,
        host=past.host,
        door=past.door,
        asked_by=past.asked_by,
        reversible=past.reversible,
        hosts=past.hosts,
        now=past.asked,
        novel=past.novel,
        editors=past.editors,
    )


def summarise_replay(replayed: Replay) -> str:
    """Say it in a line: `14 more approvals, 2 refused, 61 without waiting`."""
    said = [
        f"{replayed.extra if fate is ReplayOutcome.MORE else count} "
        f"{_COUNTED.get(fate, fate.value)}"
        for fate in ReplayOutcome
        if fate is not ReplayOutcome.SAME and (count := replayed.counts.get(fate, 0))
    ]
    return ", ".join(said) or "nothing would be different"


_COUNTED = {
    ReplayOutcome.LOST: "with approvals that would not count",
    ReplayOutcome.GONE: "by people or on hosts that are gone",
}
