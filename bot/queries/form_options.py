"""Options of form fields. Lists that hosts provide are read in advance and cached."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from bot.db import search
from bot.db.database import Database
from bot.model import request_form
from bot.model.request_form import FormField
from bot.policy import Policy, PolicyRequest, PolicySource
from connectors.command import QueryRunner
from connectors.errors import HostError
from runbooks import AnyRunbook, Refused
from runbooks._catalogue import get_kind
from runbooks._lists import LISTS, QUICK, Lister

log = logging.getLogger(__name__)

_CACHE_SECONDS = 600.0
# A host that did not answer is not queried again with every letter typed.
_RETRY_SECONDS = 20.0
_MAX_CACHED_LISTS = 2000
_MAX_EARLIER_RUNS = 100

# Host, name of the list, and the arguments of its lister.
_CacheKey = tuple[str, ...]


class FormOptions:
    """Lists options for form fields; requests are validated independently of them.

    listers: functions that read a list from a host, by the name in a field's schema.
    """

    def __init__(
        self,
        run_query: QueryRunner,
        database: Database,
        policies: PolicySource,
        *,
        listers: Mapping[str, Lister] = LISTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_query, self._database, self._policies = run_query, database, policies
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
        """Read the lists that a form for this host needs, unless they are cached.

        form_values: the values entered so far, by field.
        """
        wanted = [
            form_field
            for form_field in request_form.list_form_fields(runbook)
            if form_field.lists in self._listers
        ]
        if not self.can_request(runbook, host=host, person=person, source=source):
            return
        for form_field in wanted:
            arguments = _get_lister_arguments(runbook, form_field, form_values)
            if arguments is not None and self._claim_read(
                (host, form_field.lists, *arguments.values())
            ):
                self._read_list(host, form_field.lists, arguments)

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
        """Return the cached list of the host and values of earlier runs. Queries no host.

        The list is left out unless this person may request the runbook there, and only values of
        runs that they may view are included. form_values: the values entered so far, by field.
        """
        arguments = _get_lister_arguments(runbook, form_field, form_values)
        if arguments is None:
            return ()
        listed: Sequence[str] = ()
        if self.can_request(runbook, host=host, person=person, source=source):
            _, listed = self._cache.get((host, form_field.lists, *arguments.values()), (0.0, ()))
        if form_field.lists in QUICK:
            # Earlier values of such a list are outdated.
            return listed
        with self._database.reading(self._policies.get_policy().get_view_rights(person)) as tx:
            found = search.find_newest_runs(
                tx, search.RunFilter(host=host), most=_MAX_EARLIER_RUNS
            )
        earlier = [run.values[form_field.name] for run in found if run.values.get(form_field.name)]
        return tuple(dict.fromkeys([*listed, *map(str, earlier)]))

    def list_hosts(self, runbook: type[AnyRunbook], *, person: str, source: str) -> Iterator[str]:
        """Yield the hosts for which this person may request the runbook."""
        policy = self._policies.get_policy()
        with self._database.reading() as tx:
            now = tx.now
        return list_requestable_hosts(policy, runbook, person=person, source=source, now=now)

    def can_request(
        self, runbook: type[AnyRunbook], *, host: str, person: str, source: str
    ) -> bool:
        """Return whether the runbook supports the host and this person may request it there."""
        policy = self._policies.get_policy()
        with self._database.reading() as tx:
            now = tx.now
        found = list_requestable_hosts(
            policy, runbook, person=person, source=source, now=now, only_host=host
        )
        return next(found, None) is not None

    def _claim_read(self, key: _CacheKey) -> bool:
        """Return whether the caller has to read the list now; others get False meanwhile."""
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
            found = tuple(sorted(self._listers[list_name](self._run_query, host, arguments)))
        except (HostError, Refused) as error:
            log.info("host %s: cannot read the options for %s: %s", host, list_name, error)
            return
        fresh = _RETRY_SECONDS if list_name in QUICK else _CACHE_SECONDS
        with self._lock:
            self._cache[host, list_name, *arguments.values()] = self._clock() + fresh, found


def _get_lister_arguments(
    runbook: type[AnyRunbook], form_field: FormField, form_values: Mapping[str, str]
) -> Mapping[str, str] | None:
    """Return the arguments of a field's lister; None if one is missing or not valid."""
    defaults = {other.name: other.default for other in request_form.list_form_fields(runbook)}
    arguments = {name: form_values.get(name) or defaults[name] for name in form_field.within}
    is_valid = all(
        request_form.is_value_valid(runbook, name, value) for name, value in arguments.items()
    )
    return arguments if is_valid else None


def list_requestable_hosts(
    policy: Policy,
    runbook: type[AnyRunbook],
    *,
    person: str,
    source: str,
    now: int,
    only_host: str = "",
    decisions: dict[Hashable, bool] | None = None,
) -> Iterator[str]:
    """Yield the hosts that the runbook supports and for which this person may request it.

    It is decided once for all hosts and runbooks that the rules treat alike.

    Args:
        decisions: What was decided for the same person, source and time.
    """
    known = {} if decisions is None else decisions
    kind = get_kind(runbook)
    alike = kind, policy.get_runbook_likeness(runbook.words)
    for host in policy.inventory.list_tagged(request_form.get_required_tag(runbook)):
        if only_host and host.name != only_host:
            continue
        key = policy.host_likenesses[host.name], alike
        if key not in known:
            request = PolicyRequest(
                runbook=runbook.words,
                kind=kind,
                host=host.name,
                source=source,
                requested_by=person,
                now=now,
            )
            known[key] = policy.get_request_ruling(request).allowed
        if known[key]:
            yield host.name
