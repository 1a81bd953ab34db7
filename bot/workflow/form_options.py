"""Offering: what may be chosen in a form. Lists of hosts are read ahead and told from memory."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from bot.db import search
from bot.db.database import Database
from bot.model import request_form
from bot.model.request_form import FormField
from bot.policy import Policy, Request
from bot.workflow.context import Fleet, Policies
from connectors.errors import HostError
from runbooks import AnyRunbook, Refused
from runbooks._catalogue import get_kind
from runbooks._lists import LISTS, QUICK, Lister

log = logging.getLogger(__name__)

_FRESH_SECONDS = 600.0
# A host that did not answer is not asked again with every letter that somebody types.
_REST_SECONDS = 20.0
_MOST_REMEMBERED = 2000
_MOST_EARLIER = 100

# A host, what it lists, and where it looks for it.
Key = tuple[str, ...]


class FormOptions:
    """Says what may be chosen; nothing that is chosen is believed for it.

    lists: how to read what a host lists, by the word in a field's schema.
    """

    def __init__(
        self,
        fleet: Fleet,
        database: Database,
        policies: Policies,
        *,
        lists: Mapping[str, Lister] = LISTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet, self._database, self._policies = fleet, database, policies
        self._lists, self._clock = lists, clock
        self._lock = threading.Lock()
        self._known: dict[Key, tuple[float, Sequence[str]]] = {}

    def look(
        self,
        runbook: type[AnyRunbook],
        *,
        host: str,
        person: str,
        door: str,
        given: Mapping[str, str],
    ) -> None:
        """Ask a host for the lists that a form about it needs, where they are not known.

        given: what is filled in already, by field.
        """
        wanted = [
            blank for blank in request_form.list_form_fields(runbook) if blank.lists in self._lists
        ]
        if not self.may(runbook, host=host, person=person, door=door):
            return
        for blank in wanted:
            where = _where(runbook, blank, given)
            if where is not None and self._begin((host, blank.lists, *where.values())):
                self._read(host, blank.lists, where)

    def values(
        self,
        runbook: type[AnyRunbook],
        blank: FormField,
        *,
        host: str,
        person: str,
        door: str,
        given: Mapping[str, str],
    ) -> Sequence[str]:
        """Return what the host listed, and what was asked for there before. Asks no host.

        Of both, what this person may know: lists are for those who may have the host asked, and
        earlier values are those of runs that they may view. given: what is filled in already.
        """
        where = _where(runbook, blank, given)
        if where is None:
            return ()
        listed: Sequence[str] = ()
        if self.may(runbook, host=host, person=person, door=door):
            _, listed = self._known.get((host, blank.lists, *where.values()), (0.0, ()))
        if blank.lists in QUICK:
            # What was asked for before is not so any more.
            return listed
        with self._database.reading(self._policies.current().sight(person)) as tx:
            found = search.find_newest_runs(tx, search.RunFilter(host=host), most=_MOST_EARLIER)
        earlier = [run.fields[blank.name] for run in found if run.fields.get(blank.name)]
        return tuple(dict.fromkeys([*listed, *map(str, earlier)]))

    def hosts(self, runbook: type[AnyRunbook], *, person: str, door: str) -> Iterator[str]:
        """Yield the hosts that this person may have it done on."""
        policy = self._policies.current()
        with self._database.reading() as tx:
            now = tx.now
        return list_requestable_hosts(policy, runbook, person=person, door=door, now=now)

    def may(self, runbook: type[AnyRunbook], *, host: str, person: str, door: str) -> bool:
        """Return whether the runbook fits the host and the rules let this person ask for it."""
        policy = self._policies.current()
        with self._database.reading() as tx:
            now = tx.now
        found = list_requestable_hosts(
            policy, runbook, person=person, door=door, now=now, only=host
        )
        return next(found, None) is not None

    def _begin(self, key: Key) -> bool:
        """Return whether it is to be read now, by the caller and by nobody else meanwhile."""
        with self._lock:
            until, listed = self._known.get(key, (0.0, ()))
            if self._clock() < until:
                return False
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._clock() + _REST_SECONDS, listed
            return True

    def _read(self, host: str, word: str, where: Mapping[str, str]) -> None:
        try:
            found = tuple(sorted(self._lists[word](self._fleet.run_query, host, where)))
        except (HostError, Refused) as trouble:
            log.info("%s lists no %s: %s", host, word, trouble)
            return
        fresh = _REST_SECONDS if word in QUICK else _FRESH_SECONDS
        with self._lock:
            self._known[host, word, *where.values()] = self._clock() + fresh, found


def _where(
    runbook: type[AnyRunbook], blank: FormField, given: Mapping[str, str]
) -> Mapping[str, str] | None:
    """Return where the host looks for what a field lists; None if that is not filled in well."""
    defaults = {other.name: other.default for other in request_form.list_form_fields(runbook)}
    where = {name: given.get(name) or defaults[name] for name in blank.within}
    well = all(request_form.fits(runbook, name, value) for name, value in where.items())
    return where if well else None


def list_requestable_hosts(
    policy: Policy,
    runbook: type[AnyRunbook],
    *,
    person: str,
    door: str,
    now: int,
    only: str = "",
) -> Iterator[str]:
    """Yield the hosts that fit the runbook and that this person may have it done on."""
    tag = next(
        (blank.tag for blank in request_form.list_form_fields(runbook) if blank.kind == "host"), ""
    )
    for host in policy.inventory.list_tagged(tag or None):
        if only and host.name != only:
            continue
        request = Request(
            runbook=runbook.words,
            kind=get_kind(runbook),
            host=host.name,
            door=door,
            asked_by=person,
            now=now,
        )
        if policy.may_ask(request).allowed:
            yield host.name
