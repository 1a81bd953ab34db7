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
class _SearchedRecords:
    """What is looked through. person, host: what is said of one that it does not have either.

    never: whether nothing in it fits a filter.
    """

    has_no_match: Callable[[Transaction, RunFilter], bool]
    unknown_person: str
    unknown_host: str


def describe_unknown_names(
    tx: Transaction, run_filter: RunFilter, policy: Policy
) -> dict[str, str]:
    """Return by filter what to say of each name that neither the policy nor any run has.

    It is asked for where nothing was found: what is found is nobody's mistake.
    """
    return dict(_describe_unknown_values(tx, run_filter, policy, _SEARCHED_RUNS))


def describe_unknown_log_names(
    tx: Transaction, entry_filter: query.EntryFilter, policy: Policy
) -> dict[str, str]:
    """Return the same of a filter of the log, which also has people who never asked."""
    of_runs = entry_filter.run_filter or RunFilter()
    named = replace(of_runs, person=entry_filter.person or None, host=entry_filter.host or None)
    return dict(_describe_unknown_values(tx, named, policy, _SEARCHED_LOG))


def _describe_unknown_values(
    tx: Transaction, run_filter: RunFilter, policy: Policy, searched: _SearchedRecords
) -> Iterator[tuple[str, str]]:
    # Whoever is banned is left out of the policy that holds.
    people = {*policy.organisation.people, *stops.list_banned_people(tx)}
    hosts = {host.name for host in policy.inventory}
    person, host, words, area = (
        run_filter.person,
        run_filter.host,
        run_filter.runbook,
        run_filter.area,
    )
    if person and person not in people and searched.has_no_match(tx, RunFilter(person=person)):
        yield (
            "person",
            f"“{person}” is not in the policy, {searched.unknown_person}"
            + _suggest_known_name(person, people),
        )
    if (
        host
        and not _matches_any_host(host, hosts)
        and searched.has_no_match(tx, RunFilter(host=host))
    ):
        yield (
            "host",
            f"no host “{host}” is in the inventory, {searched.unknown_host}"
            + _suggest_known_name(host, hosts),
        )
    if words and words not in load_catalogue() and _has_no_run(tx, RunFilter(runbook=words)):
        said = f"there is no runbook “{words}”, and none was ever asked for"
        yield "runbook", said + _suggest_known_name(words, load_catalogue())
    areas = policy.organisation.areas
    if area and area not in areas and _has_no_run(tx, RunFilter(area=area)):
        said = f"there is no area “{area}”, and nothing was ever asked for in one"
        yield "area", said + _suggest_known_name(area, areas)


def _has_no_run(tx: Transaction, run_filter: RunFilter) -> bool:
    """Say whether no run has ever fitted this filter alone."""
    return search.find_page_numbers(tx, run_filter, 1) == ([], None)


def _has_no_run_or_entry(tx: Transaction, run_filter: RunFilter) -> bool:
    """Say the same of the runs and of the entries."""
    named = query.EntryFilter(host=run_filter.host or "", person=run_filter.person or "")
    return _has_no_run(tx, run_filter) and not query.find_newest_entries(tx, named, limit=1)


_SEARCHED_RUNS = _SearchedRecords(
    _has_no_run,
    unknown_person="and has never asked for anything",
    unknown_host="and nothing was ever asked of one",
)
_SEARCHED_LOG = _SearchedRecords(
    _has_no_run_or_entry,
    unknown_person="and the log knows nobody of that name",
    unknown_host="and the log knows of none",
)


def _matches_any_host(pattern: str, hosts: Collection[str]) -> bool:
    return any(host_patterns.matches_pattern(host, pattern) for host in hosts)


def _suggest_known_name(word: str, known_names: Collection[str]) -> str:
    like = get_close_matches(word, known_names, n=1)
    return f": is “{like[0]}” meant?" if like else ""
