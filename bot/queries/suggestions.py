"""What a person can request, and what a request in plain words can mean for them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.model.plain_request import (
    PlainRequest,
    Suggestion,
    find_suggestions,
    parse_plain_request,
    select_nearest,
)
from bot.model.request_form import get_required_tag
from bot.model.times import SECOND
from bot.policy import Policy
from bot.queries.form_options import list_requestable_hosts
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

_CACHE_TIME, _MAX_CACHED_PEOPLE = 60 * SECOND, 200
_MAX_OFFERED = 3

RequestableHosts = Mapping[str, Sequence[str]]
"""By the words of a runbook: the hosts on which a person may request it."""


class RequestableRunbooks:
    """What each person may request, computed at most once a minute: for help and suggestions.

    The request itself is checked when it is made.
    """

    def __init__(self, source: str) -> None:
        self._source, self._lock = source, threading.Lock()
        self._cache: OrderedDict[str, tuple[Policy, int, RequestableHosts]] = OrderedDict()

    def get_hosts(self, policy: Policy, person: str, *, now: int) -> RequestableHosts:
        """Return what a person may request. now: microseconds."""
        with self._lock:
            known = self._cache.get(person)
        if known and known[0] is policy and 0 <= now - known[1] < _CACHE_TIME:
            return known[2]
        found = _list_requestable(policy, person, source=self._source, now=now)
        with self._lock:
            self._cache[person] = policy, now, found
            if len(self._cache) > _MAX_CACHED_PEOPLE:
                self._cache.popitem(last=False)
        return found


def _list_requestable(policy: Policy, person: str, *, source: str, now: int) -> RequestableHosts:
    decisions: dict[Hashable, bool] = {}
    # Runbooks that the rules treat alike, and that the same hosts support, share their hosts.
    lists: dict[Hashable, Sequence[str]] = {}
    found: dict[str, Sequence[str]] = {}
    for words, runbook in load_catalogue().items():
        alike = get_kind(runbook), policy.get_runbook_likeness(words), get_required_tag(runbook)
        if alike not in lists:
            lists[alike] = [
                *list_requestable_hosts(
                    policy, runbook, person=person, source=source, now=now, decisions=decisions
                )
            ]
        if lists[alike]:
            found[words] = lists[alike]
    return found


@dataclass(frozen=True)
class SuggestedRequests:
    """What a request in plain words can mean."""

    request: PlainRequest
    offered: Sequence[Suggestion] = ()
    """What the person may request, best first."""
    withheld: Suggestion | None = None
    """The best that fits, where all that fit are withheld by the policy and the person may view
    its runs."""


def suggest_requests(
    policy: Policy, text: str, *, person: str, get_hosts: Callable[[], RequestableHosts]
) -> SuggestedRequests:
    """Find what a person can mean by a plain text. Requests nothing.

    get_hosts: returns what the person may request.
    """
    hosts = policy.inventory.hosts
    request = parse_plain_request(text, hosts)
    nearest = select_nearest(find_suggestions(request, hosts))
    if not nearest:
        return SuggestedRequests(request)
    allowed = get_hosts()
    offered = _join_hosts([one for one in nearest if _is_allowed(one, allowed)])
    withheld = None if offered else nearest[0]
    if withheld and not _can_view(policy, person, withheld):
        withheld = None
    return SuggestedRequests(request, offered[:_MAX_OFFERED], withheld)


def _join_hosts(suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """Return the same request on several hosts as one, for `lb1,lb2`."""
    joined: dict[object, Suggestion] = {}
    for one in suggestions:
        host = one.values.get("host", "")
        others = {name: value for name, value in one.values.items() if name != "host"}
        key = one.runbook, *others.items()
        known = joined.get(key)
        if known is None or not host:
            joined[key] = one
        else:
            hosts = f"{known.values['host']},{host}"
            joined[key] = replace(known, values={**known.values, "host": hosts})
    return [*joined.values()]


def _is_allowed(suggestion: Suggestion, allowed: RequestableHosts) -> bool:
    hosts = allowed.get(suggestion.runbook.words, ())
    host = suggestion.values.get("host")
    return host in hosts if host else bool(hosts)


def _can_view(policy: Policy, person: str, suggestion: Suggestion) -> bool:
    runbook: type[AnyRunbook] = suggestion.runbook
    rights, host = policy.get_view_rights(person), suggestion.values.get("host", "")
    if host:
        return rights.can_view(host=host, runbook=runbook.words, kind=get_kind(runbook))
    return bool(rights.list_viewable(runbook.words, get_kind(runbook)).hosts)
