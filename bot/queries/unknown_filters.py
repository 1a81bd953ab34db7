"""Report filter values that do not exist, so that an empty list is not misread."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bot.db import search, stops
from bot.db.database import Transaction
from bot.db.search import RunFilter
from bot.model import host_patterns
from bot.policy import Policy
from bot.queries import log_search
from runbooks import load_catalogue


@dataclass(frozen=True)
class _SearchedRecords:
    """The runs, or the log, that a filter searches."""

    has_no_match: Callable[[Transaction, RunFilter], bool]
    """Whether no record matches a filter."""
    unknown_person: str
    """The end of the message about an unknown person."""
    unknown_host: str
    """The end of the message about an unknown host."""


def describe_unknown_names(
    tx: Transaction, run_filter: RunFilter, policy: Policy
) -> dict[str, str]:
    """Return a message by filter for each name that is in neither the policy nor any run.

    Call it only when a search returned nothing.
    """
    return dict(_describe_unknown_values(tx, run_filter, policy, _SEARCHED_RUNS))


def describe_unknown_log_names(
    tx: Transaction, entry_filter: log_search.EntryFilter, policy: Policy
) -> dict[str, str]:
    """Return the same for a filter of the log, which also has people without requests."""
    of_runs = entry_filter.run_filter or RunFilter()
    named = replace(of_runs, person=entry_filter.person or None, host=entry_filter.host or None)
    return dict(_describe_unknown_values(tx, named, policy, _SEARCHED_LOG))


def _describe_unknown_values(
    tx: Transaction, run_filter: RunFilter, policy: Policy, searched: _SearchedRecords
) -> Iterator[tuple[str, str]]:
    # Banned people are left out of the policy that is in force.
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
        text = f"there is no runbook “{words}”, and it was never requested"
        yield "runbook", text + _suggest_known_name(words, load_catalogue())
    areas = policy.organisation.areas
    if area and area not in areas and _has_no_run(tx, RunFilter(area=area)):
        text = f"there is no area “{area}”, and nothing was ever requested in it"
        yield "area", text + _suggest_known_name(area, areas)


def _has_no_run(tx: Transaction, run_filter: RunFilter) -> bool:
    """Return whether no run matches the filter."""
    return search.find_page_numbers(tx, run_filter, 1) == ([], None)


def _has_no_run_or_entry(tx: Transaction, run_filter: RunFilter) -> bool:
    """Return whether no run and no log entry matches the filter."""
    named = log_search.EntryFilter(host=run_filter.host or "", person=run_filter.person or "")
    return _has_no_run(tx, run_filter) and not log_search.find_newest_entries(tx, named, limit=1)


_SEARCHED_RUNS = _SearchedRecords(
    _has_no_run,
    unknown_person="and has never requested anything",
    unknown_host="and no run was ever requested for it",
)
_SEARCHED_LOG = _SearchedRecords(
    _has_no_run_or_entry,
    unknown_person="and not in the log",
    unknown_host="and it is not in the log",
)


def _matches_any_host(pattern: str, hosts: Collection[str]) -> bool:
    return any(host_patterns.matches_pattern(host, pattern) for host in hosts)


def _suggest_known_name(word: str, known_names: Collection[str]) -> str:
    like = get_close_matches(word, known_names, n=1)
    return f": did you mean “{like[0]}”?" if like else ""
