"""Strangers: what a filter of the history names that never was, lest it reads as "nobody did"."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from bot.policy import Policy
from bot.store import bans, patterns, search
from bot.store.database import Transaction
from bot.store.search import Filter
from runbooks import catalogue


def strangers(tx: Transaction, wanted: Filter, policy: Policy) -> dict[str, str]:
    """Return by filter what to say of each name that neither the policy nor any run has.

    It is asked for where nothing was found: what is found is nobody's mistake.
    """
    return dict(_strangers(tx, wanted, policy))


def _strangers(tx: Transaction, wanted: Filter, policy: Policy) -> Iterator[tuple[str, str]]:
    # Whoever is banned is left out of the policy that holds.
    people = {*policy.household.people, *bans.people(tx)}
    hosts = {host.name for host in policy.inventory}
    if wanted.person and wanted.person not in people and _never(tx, Filter(person=wanted.person)):
        said = f"“{wanted.person}” is not in the policy, and has never asked for anything"
        yield "person", said + _meant(wanted.person, people)
    if wanted.host and not _fits(wanted.host, hosts) and _never(tx, Filter(host=wanted.host)):
        said = f"no host “{wanted.host}” is in the inventory, and nothing was ever asked of one"
        yield "host", said + _meant(wanted.host, hosts)
    if wanted.words and wanted.words not in catalogue() and _never(tx, Filter(words=wanted.words)):
        said = f"there is no runbook “{wanted.words}”, and none was ever asked for"
        yield "runbook", said + _meant(wanted.words, catalogue())
    areas = policy.household.areas
    if wanted.area and wanted.area not in areas and _never(tx, Filter(area=wanted.area)):
        said = f"there is no area “{wanted.area}”, and nothing was ever asked for in one"
        yield "area", said + _meant(wanted.area, areas)


def _never(tx: Transaction, alone: Filter) -> bool:
    """Say whether no run has ever fitted this filter alone."""
    return search.looked_for(tx, alone, 1) == ([], None)


def _fits(pattern: str, hosts: Collection[str]) -> bool:
    return any(patterns.fits(host, pattern) for host in hosts)


def _meant(word: str, known: Collection[str]) -> str:
    like = get_close_matches(word, known, n=1)
    return f": is “{like[0]}” meant?" if like else ""
