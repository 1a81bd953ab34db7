"""Offering: what may be chosen in a form. Lists of hosts are read ahead and told from memory."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from bot.db import search
from bot.db.database import Database
from bot.model import request_form
from bot.model.request_form import FormField
from bot.policy import Policy, PolicyRequest, PolicySource
from bot.workflow.context import HostFleet
from connectors.errors import HostError
from runbooks import AnyRunbook, Refused
from runbooks._catalogue import get_kind
from runbooks._lists import LISTS, QUICK, Lister

log = logging.getLogger(__name__)

_CACHE_SECONDS = 600.0
# A host that did not answer is not asked again with every letter that somebody types.
_RETRY_SECONDS = 20.0
_MAX_CACHED_LISTS = 2000
_MAX_EARLIER_RUNS = 100

# A host, what it lists, and where it looks for it.
_CacheKey = tuple[str, ...]


class FormOptions:
    """Says what may be chosen; nothing that is chosen is believed for it.

    lists: how to read what a host lists, by the word in a field's schema.
    """

    def __init__(
        self,
        fleet: HostFleet,
        database: Database,
        policies: PolicySource,
        *,
        listers: Mapping[str, Lister] = LISTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet, self._database, self._policies = fleet, database, policies
        self._listers, self._clock = listers, clock
        self._lock = threading.Lock()
        self._cache: dict[_CacheKey, tuple[float, Sequence[str]]] = {}

    def read_options(
        self,
        runbook: type[AnyRunbook],
        *,
        host: str,
        person: str,
        source: str,
        form_values: Mapping[str, str],
    ) -> None:
        """Ask a host for the lists that a form about it needs, where they are not known.

        given: what is filled in already, by field.
        """
        wanted = [
            blank
            for blank in request_form.list_form_fields(runbook)
            if blank.lists in self._listers
        ]
        if not self.can_request(runbook, host=host, person=person, source=source):
            return
        for blank in wanted:
            where = _get_lister_arguments(runbook, blank, form_values)
            if where is not None and self._claim_read((host, blank.lists, *where.values())):
                self._read_list(host, blank.lists, where)

    def list_options(
        self,
        runbook: type[AnyRunbook],
        form_field: FormField,
        *,
        host: str,
        person: str,
        source: str,
        form_values: Mapping[str, str],
    ) -> Sequence[str]:
        """Return what the host listed, and what was asked for there before. Asks no host.

        Of both, what this person may know: lists are for those who may have the host asked, and
        earlier values are those of runs that they may view. given: what is filled in already.
        """
        where = _get_lister_arguments(runbook, form_field, form_values)
        if where is None:
            return ()
        listed: Sequence[str] = ()
        if self.can_request(runbook, host=host, person=person, source=source):
            _, listed = self._cache.get((host, form_field.lists, *where.values()), (0.0, ()))
        if form_field.lists in QUICK:
            # What was asked for before is not so any more.
            return listed
        with self._database.reading(self._policies.get_policy().get_view_rights(person)) as tx:
            found = search.find_newest_runs(
                tx, search.RunFilter(host=host), most=_MAX_EARLIER_RUNS
            )
        earlier = [run.values[form_field.name] for run in found if run.values.get(form_field.name)]
        return tuple(dict.fromkeys([*listed, *map(str, earlier)]))

    def list_hosts(self, runbook: type[AnyRunbook], *, person: str, source: str) -> Iterator[str]:
        """Yield the hosts that this person may have it done on."""
        policy = self._policies.get_policy()
        with self._database.reading() as tx:
            now = tx.now
        return list_requestable_hosts(policy, runbook, person=person, source=source, now=now)

    def can_request(
        self, runbook: type[AnyRunbook], *, host: str, person: str, source: str
    ) -> bool:
        """Return whether the runbook fits the host and the rules let this person ask for it."""
        policy = self._policies.get_policy()
        with self._database.reading() as tx:
            now = tx.now
        found = list_requestable_hosts(
            policy, runbook, person=person, source=source, now=now, only_host=host
        )
        return next(found, None) is not None

    def _claim_read(self, key: _CacheKey) -> bool:
        """Return whether it is to be read now, by the caller and by nobody else meanwhile."""
        with self._lock:
            until, listed = self._cache.get(key, (0.0, ()))
            if self._clock() < until:
                return False
            if len(self._cache) >= _MAX_CACHED_LISTS:
                self._cache.clear()
            self._cache[key] = self._clock() + _RETRY_SECONDS, listed
            return True

    def _read_list(self, host: str, list_name: str, arguments: Mapping[str, str]) -> None:
        try:
            found = tuple(sorted(self._listers[list_name](self._fleet.run_query, host, arguments)))
        except (HostError, Refused) as trouble:
            log.info("%s lists no %s: %s", host, list_name, trouble)
            return
        fresh = _RETRY_SECONDS if list_name in QUICK else _CACHE_SECONDS
        with self._lock:
            self._cache[host, list_name, *arguments.values()] = self._clock() + fresh, found


def _get_lister_arguments(
    runbook: type[AnyRunbook], form_field: FormField, form_values: Mapping[str, str]
) -> Mapping[str, str] | None:
    """Return where the host looks for what a field lists; None if that is not filled in well."""
    defaults = {other.name: other.default for other in request_form.list_form_fields(runbook)}
    where = {name: form_values.get(name) or defaults[name] for name in form_field.within}
    well = all(request_form.is_value_valid(runbook, name, value) for name, value in where.items())
    return where if well else None


def list_requestable_hosts(
    policy: Policy,
    runbook: type[AnyRunbook],
    *,
    person: str,
    source: str,
    now: int,
    only_host: str = "",
) -> Iterator[str]:
    """Yield the hosts that fit the runbook and that this person may have it done on."""
    tag = next(
        (blank.tag for blank in request_form.list_form_fields(runbook) if blank.kind == "host"), ""
    )
    for host in policy.inventory.list_tagged(tag or None):
        if only_host and host.name != only_host:
            continue
        request = PolicyRequest(
            runbook=runbook.words,
            kind=get_kind(runbook),
            host=host.name,
            source=source,
            requested_by=person,
            now=now,
        )
        if policy.get_request_ruling(request).allowed:
            yield host.name
