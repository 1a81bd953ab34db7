"""Erasing: what hosts answered in a run is erased for good, by two persons."""

from bot.run import Run
from bot.store import changelog, output, runs
from bot.store.changelog import Entry
from bot.store.database import Transaction
from bot.workflow.asking import Unfit
from bot.workflow.deciding import NotYours, TooLate
from bot.workflow.parts import Parts
from connectors.command import UncleanText, clean

ASKED, REFUSED = "erasure asked", "erasure refused"
_SHORTEST_REASON = 10


def ask_to_erase(parts: Parts, number: int, *, person: str, why: str, login: str) -> None:
    """Ask for it; nothing is erased yet. login: who typed it, as the machine knows them."""
    if len(why.strip()) < _SHORTEST_REASON:
        raise Unfit("say why, in ten characters or more")
    try:
        reason = clean(why.strip())[:1000]
    except UncleanText as unclean:
        raise Unfit(f"the reason {unclean}") from None
    if parts.policies.current().person(person) is None:
        raise NotYours(f"{person} is not among the people of the policy")
    with parts.database.transaction() as tx:
        run = runs.hold(tx, number)
        if not run.over:
            raise Unfit(f"run {number} is {run.state}: what it is told is still needed")
        if not _runs_with_output(tx, run):
            raise TooLate(f"nothing is kept any more of what the host answered in run {number}")
        changelog.append(
            tx, ASKED, run=number, person=person, host=run.host, why=reason, login=login
        )


def confirm_erasure(parts: Parts, number: int, *, person: str, login: str) -> int:
    """Erase what another person asked to; return how many outputs are gone.

    The chain keeps their hashes. Raises NotYours unless this is another person, and an owner.
    """
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        run = runs.hold(tx, number)
        asked = _open_request(tx, number)
        refusal = ""
        if person == asked.person:
            refusal = "you asked for it: another person has to confirm it"
        elif person not in policy.area_of(run.host).owners:
            refusal = f"only an owner of {policy.area_of(run.host).title} can confirm it"
        gone = 0 if refusal else _erase(tx, run, asked, person=person, login=login)
        if refusal:
            changelog.append(
                tx, REFUSED, run=number, person=person, host=run.host, why=refusal, login=login
            )
    if refusal:
        raise NotYours(refusal)
    return gone


def _erase(tx: Transaction, run: Run, asked: Entry, *, person: str, login: str) -> int:
    gone = 0
    for each in _runs_with_output(tx, run):
        entries = output.erase(tx, each)
        gone += len(entries)
        changelog.append(
            tx,
            output.ERASED,
            run=each,
            person=person,
            host=run.host,
            asked_by=asked.person,
            why=asked.facts["why"],
            entries=entries,
            login=login,
        )
    return gone


def _runs_with_output(tx: Transaction, run: Run) -> list[int]:
    family = [run.id, *(child.id for child in runs.children(tx, run.id))]
    return [number for number in family if output.kept(tx, number)]


def _open_request(tx: Transaction, number: int) -> Entry:
    told = [e for e in changelog.of_run(tx, number) if e.kind in {ASKED, output.ERASED}]
    if not told or told[-1].kind != ASKED:
        raise TooLate(f"nobody has asked to erase what the host answered in run {number}")
    return told[-1]
