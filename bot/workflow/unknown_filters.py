"""Strangers: what a filter names that never was, lest it reads as "nobody did"."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bot.audit import query
from bot.db import search, stops
from bot.db.database import Transaction
from bot.db.search import RunFilter
from bot.model import host_patterns
from bot.policy import Policy
from runbooks import load_catalogue


@dataclass(frozen=True)
class _Book:
    """What is looked through. person, host: what is said of one that it does not have either.

    never: whether nothing in it fits a filter.
    """

    never: Callable[[Transaction, RunFilter], bool]
    person: str
    host: str


def describe_unknown_names(tx: Transaction, wanted: RunFilter, policy: Policy) -> dict[str, str]:
    """Return by filter what to say of each name that neither the policy nor any run has.

    It is asked for where nothing was found: what is found is nobody's mistake.
    """
    return dict(_strangers(tx, wanted, policy, _HISTORY))


def describe_unknown_log_names(
    tx: Transaction, wanted: query.EntryFilter, policy: Policy
) -> dict[str, str]:
    """Return the same of a filter of the log, which also has people who never asked."""
    of_runs = wanted.runs or RunFilter()
    named = replace(of_runs, person=wanted.person or None, host=wanted.host or None)
    return dict(_strangers(tx, named, policy, _LOG))


def _strangers(
    tx: Transaction, wanted: RunFilter, policy: Policy, book: _Book
) -> Iterator[tuple[str, str]]:
    # Whoever is banned is left out of the policy that holds.
    people = {*policy.household.people, *stops.list_banned_people(tx)}
    hosts = {host.name for host in policy.inventory}
    person, host, words, area = wanted.person, wanted.host, wanted.words, wanted.area
    if person and person not in people and book.never(tx, RunFilter(person=person)):
        yield "person", f"“{person}” is not in the policy, {book.person}" + _meant(person, people)
    if host and not _fits(host, hosts) and book.never(tx, RunFilter(host=host)):
        yield "host", f"no host “{host}” is in the inventory, {book.host}" + _meant(host, hosts)
    if words and words not in load_catalogue() and _never_asked(tx, RunFilter(words=words)):
        said = f"there is no runbook “{words}”, and none was ever asked for"
        yield "runbook", said + _meant(words, load_catalogue())
    areas = policy.household.areas
    if area and area not in areas and _never_asked(tx, RunFilter(area=area)):
        said = f"there is no area “{area}”, and nothing was ever asked for in one"
        yield "area", said + _meant(area, areas)


def _never_asked(tx: Transaction, alone: RunFilter) -> bool:
    """Say whether no run has ever fitted this filter alone."""
    return search.find_page_numbers(tx, alone, 1) == ([], None)


def _never_logged(tx: Transaction, alone: RunFilter) -> bool:
    """Say the same of the runs and of the entries."""
    named = query.EntryFilter(host=alone.host or "", person=alone.person or "")
    return _never_asked(tx, alone) and not query.find_newest_entries(tx, named, most=1)


_HISTORY = _Book(
    _never_asked,
    person="and has never asked for anything",
    host="and nothing was ever asked of one",
)
_LOG = _Book(
    _never_logged, person="and the log knows nobody of that name", host="and the log knows of none"
)


def _fits(pattern: str, hosts: Collection[str]) -> bool:
    return any(host_patterns.matches_pattern(host, pattern) for host in hosts)


def _meant(word: str, known: Collection[str]) -> str:
    like = get_close_matches(word, known, n=1)
    return f": is “{like[0]}” meant?" if like else ""
