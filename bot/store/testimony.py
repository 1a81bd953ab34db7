"""Testimony: what the signed log bears out of a run, whatever its own row and its votes say.

Whoever can write to the database can write a vote, or set a run back to where it was. Without the
key of the log they cannot write the entry that belongs to it. Only the key that seals the log now
counts: what an older one signed would have to be followed through the whole chain, and what waited
for an approval meanwhile is easily asked for again.
"""

from collections.abc import Sequence

from bot.digest import sha256
from bot.run import ENDED, Run, State, Vote
from bot.store import changelog, runs, seal
from bot.store.changelog import Entry
from bot.store.database import Transaction

_ENDS = frozenset(state.value for state in ENDED)
_BEFORE_START = frozenset({State.ASKED, State.WAITING, State.READY, State.STARTING})


def against(tx: Transaction, run: Run) -> str:
    """Say what the log does not bear out of a run that is to be let through; "" if all is well."""
    entries = [entry for entry in changelog.of_run(tx, run.id) if is_ours(tx, entry)]
    return (
        _of_request(run, entries)
        or _of_plan(run, entries)
        or _of_votes(runs.votes(tx, run.id), entries)
        or _of_state(run, entries)
    )


def is_ours(tx: Transaction, entry: Entry) -> bool:
    """Say whether the entry has its hash, and that the signature of our key."""
    content = {
        name: value for name, value in vars(entry).items() if name not in {"hash", "signature"}
    }
    return sha256(content) == entry.hash and seal.fits(tx.seal.public, entry.hash, entry.signature)


def _of_request(run: Run, entries: Sequence[Entry]) -> str:
    """A request was asked for, or proposed by somebody else and accepted by its asker."""
    doubt = f"that {run.asked_by} asked for this"
    asked = [entry for entry in entries if entry.kind == "asked"]
    if not asked:
        return doubt if not _accepted(run, entries) else ""
    facts = asked[0].facts
    said = (asked[0].person, asked[0].host, facts["runbook"], facts["door"], facts["undo_of"])
    mine = (run.asked_by, run.host, run.words, run.origin.door, run.undo_of)
    return "" if said == mine and facts["hosts"] == list(run.hosts) else doubt


def _accepted(run: Run, entries: Sequence[Entry]) -> bool:
    proposed = [entry for entry in entries if entry.kind == "proposed"]
    return any(
        entry.facts["asked_by"] == run.asked_by
        and entry.host == run.host
        and entry.person in run.editors
        for entry in proposed
    ) and any(
        entry.kind == "accepted"
        and entry.person == run.asked_by
        and entry.facts["digest"] == run.digest
        for entry in entries
    )


def _of_plan(run: Run, entries: Sequence[Entry]) -> str:
    """A plan names request and values, and its digest stands for all of it."""
    planned = [entry for entry in entries if entry.kind == "planned"]
    if not planned or planned[-1].facts["digest"] != run.digest:
        return "that this plan was shown"
    plan = run.proposal
    if plan is None or plan.digest != run.digest:
        return "that this plan was shown"
    said = (plan.asked_by, plan.runbook, dict(plan.fields), plan.undo_of)
    mine = (run.asked_by, run.words, dict(run.fields), run.undo_of)
    return "" if said == mine else "that the plan is one for this request"


def _of_votes(votes: Sequence[Vote], entries: Sequence[Entry]) -> str:
    if any(entry.kind == State.DENIED.value for entry in entries):
        return "that nobody has denied it"
    approved = {
        (entry.person, entry.facts["digest"], *_how(entry))
        for entry in entries
        if entry.kind == "approved"
    }
    for vote in votes:
        cast = (vote.person, vote.digest, vote.factor, vote.instead_of)
        if vote.yes and cast not in approved:
            return f"that {vote.person} approved it"
    return ""


def _how(entry: Entry) -> tuple[str, str]:
    return entry.facts.get("factor") or "", entry.facts.get("instead_of") or ""


def _of_state(run: Run, entries: Sequence[Entry]) -> str:
    """What has begun or ended does not begin again."""
    kinds = {entry.kind for entry in entries}
    if run.state in _BEFORE_START and "started" in kinds:
        return "that it has not been started before"
    return "" if run.over or not kinds & _ENDS else "that it has not ended before"
