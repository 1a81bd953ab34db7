"""A prospect: what would come of a request, before anybody makes it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.policy import Policy, Request

_SECOND = 1_000_000


@dataclass(frozen=True)
class Prospect:
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
            usual = [f"That usually takes {in_words(wait)}."]
        return [f"{who} may ask; it takes {keys} from {self.whose}: {can}.", *usual, *said]


def prospect(policy: Policy, request: Request) -> Prospect:
    """Look at one request with the policy's eyes."""
    ruling, views = policy.may_ask(request), policy.sees(request.asked_by, request)
    if not ruling.allowed or not ruling.approvals:
        return Prospect(
            ruling.allowed, says=ruling.says, reversible=request.reversible, views=views
        )
    return Prospect(
        allowed=True,
        approvals=ruling.approvals,
        whose=policy.whose(ruling.terms),
        approvers=[person.name for person in policy.approvers(request, ruling)],
        says=ruling.says,
        reversible=request.reversible,
        views=views,
    )


def in_words(microseconds: int) -> str:
    """Return a span as people say it: 40 s, 7 min, 2 h 5 min."""
    seconds = round(microseconds / _SECOND)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
