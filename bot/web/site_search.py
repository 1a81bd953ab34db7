"""Search of all pages: a request as typed in chat, or a run, host, person or runbook."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from bot.db import runs, search
from bot.db.database import Transaction
from bot.db.search_words import split_search_words
from bot.model import request_form
from bot.model.request_form import RequestSyntaxError
from bot.model.run import Run
from bot.model.runbook_info import list_runbook_info
from bot.policy import Policy
from bot.web.auth import open_visit
from bot.web.templating import render_page
from runbooks import load_catalogue

router = APIRouter()

_RUN_PATTERN = re.compile(r"(?:run\s+|#)?(\d{1,9})", re.IGNORECASE)
_REASON_PATTERN = re.compile(r"\sbecause\s+(?=\S)", re.IGNORECASE)
_MAX_RESULTS = 10
"""Results of each kind."""
_MAX_SUGGESTIONS = 4
"""Suggestions of each kind."""

TextQuery = Annotated[str, Query(max_length=1000)]


@dataclass(frozen=True)
class SearchResult:
    """One meaning of the searched text."""

    kind: str
    """`Run`, `Host`, `Person` or `Runbook`."""
    title: str
    url: str
    description: str = ""


@router.get("/search")
def search_pages(request: Request, q: TextQuery = "") -> Response:
    """Redirect to what the text names; list the results if there are none or several."""
    text = " ".join(q.split()).removeprefix("/keyturn ")
    problem = ""
    with open_visit(request) as (user, tx):
        try:
            results = _find_exact(tx, user.policy, text)
        except RequestSyntaxError as error:
            results, problem = [], str(error)
        results = results or _find_similar(tx, user.policy, text)
    if len(results) == 1 and not problem:
        return RedirectResponse(results[0].url, 303)
    return render_page(request, "search.html", text=text, results=results, problem=problem)


@router.get("/search/suggestions")
def suggest_results(request: Request, q: TextQuery = "") -> Response:
    """Return what a text may be completed to, as the options of the search field."""
    text = " ".join(q.split()).removeprefix("/keyturn ")
    with open_visit(request) as (user, tx):
        number = _RUN_PATTERN.fullmatch(text)
        found = [_build_run(run) for run in runs.get_runs(tx, [int(number[1])] if number else [])]
        found += _find_similar(tx, user.policy, text, most=_MAX_SUGGESTIONS)
    return render_page(request, "search_suggestions.html", results=found)


def _find_exact(tx: Transaction, policy: Policy, text: str) -> list[SearchResult]:
    """Return what has this number or name, and the form of this request.

    Raises:
        RequestSyntaxError: The text begins with a runbook, and the rest is not valid.
    """
    lowered = text.lower()
    number = _RUN_PATTERN.fullmatch(text)
    results = [_build_run(run) for run in runs.get_runs(tx, [int(number[1])] if number else [])]
    if lowered in policy.inventory.hosts:
        results.append(_build_host(policy, lowered))
    if policy.find_person(lowered):
        results.append(_build_person(policy, lowered))
    command, *reason = _REASON_PATTERN.split(text, maxsplit=1)
    if any(f"{command} ".lower().startswith(f"{name} ") for name in load_catalogue()):
        runbook, words = request_form.find_runbook(request_form.split_words(command))
        values = request_form.assign_words(runbook, words)
        results.append(_build_request(runbook.words, values, reason))
    return results


def _find_similar(
    tx: Transaction, policy: Policy, text: str, *, most: int = _MAX_RESULTS
) -> list[SearchResult]:
    """Return the hosts, people and runbooks whose names contain the words, and matching runs.

    most: how many of each kind.
    """
    words = text.casefold().split()
    if not words:
        return []

    def is_match(*texts: str) -> bool:
        return all(word in " ".join(texts).casefold() for word in words)

    hosts = [one.name for one in policy.inventory if is_match(one.name)]
    people = [one.id for one in policy.organisation.people.values() if is_match(one.id, one.name)]
    runbooks = [one for one in list_runbook_info() if is_match(one.name, one.summary)]
    run_filter = search.RunFilter(text=split_search_words(text))
    matching: Sequence[Run] = ()
    if run_filter.text:
        matching = search.find_newest_runs(tx, run_filter, most=most)
    return [
        *(_build_host(policy, name) for name in hosts[:most]),
        *(_build_person(policy, person) for person in people[:most]),
        *(_build_request(one.name, {}, (), one.summary) for one in runbooks[:most]),
        *map(_build_run, matching),
    ]


def _build_run(run: Run) -> SearchResult:
    return SearchResult("Run", f"run {run.id}", f"/runs/{run.id}", run.title)


def _build_host(policy: Policy, name: str) -> SearchResult:
    return SearchResult("Host", name, f"/hosts/{name}", policy.get_area(name).title)


def _build_person(policy: Policy, person: str) -> SearchResult:
    name = policy.get_person_name(person)
    return SearchResult("Person", person, f"/policy/{quote(person)}", name)


def _build_request(
    runbook: str, values: Mapping[str, str], reason: Sequence[str], summary: str = ""
) -> SearchResult:
    address = {"runbook": runbook, **values, **({"reason": reason[0]} if reason else {})}
    return SearchResult("Runbook", runbook, f"/runbooks/form?{urlencode(address)}", summary)
