"""Conditions for queries, so that they return only what a person may view.

Only this module applies view rights to stored runs and entries. A transaction of the service
itself has no view rights and sees everything.
"""

import json
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import select

from bot.db import sql_text, tables
from bot.db.condition import Condition
from bot.db.database import Transaction
from bot.db.tables import PARENT, PLAN_ONLY
from bot.model import references
from bot.model.sequence import SEQUENCES
from bot.model.view_rights import ViewableScope, ViewRights, can_view_all
from bot.model.waiting import Waiting
from connectors.errors import DomainError


class NotEverything(DomainError):
    """This needs the right to view every run."""

    code, status = "not-allowed", 403


_ALL = Condition()


def runs_condition(tx: Transaction) -> Condition:
    """Return the condition on rows of the table `run`."""
    return _conditions(tx)[0]


def entries_condition(tx: Transaction) -> Condition:
    """Return the condition on rows of the table `entry`."""
    return _conditions(tx)[1]


def can_view_everything(tx: Transaction) -> bool:
    return not runs_condition(tx).sql


def require_everything(tx: Transaction, what: str) -> None:
    """Raise NotEverything unless every run may be viewed. what: the subject of the message."""
    if not can_view_everything(tx):
        raise NotEverything(
            f"{what} needs the right to view every run. Ask a person who has it, or permit it by "
            'a rule with action == Action::"view".'
        )


def list_viewable(tx: Transaction, numbers: Iterable[int]) -> frozenset[int]:
    """Return which of these runs may be viewed."""
    wanted, condition = frozenset(numbers), runs_condition(tx)
    if not condition.sql or not wanted:
        return wanted
    query = select(tables.run.c.id).where(tables.run.c.id.in_(wanted), condition.clause())
    return frozenset(tx.sql.execute(query).scalars())


def show_references(tx: Transaction, text: str) -> str:
    """Return a stored sentence as the person may read it, who reads in this transaction.

    The service reads for no one in particular, so its sentences name no other run.
    """
    numbers = references.list_referenced_runs(text)
    if not numbers or tx.view_rights is None:
        return references.hide_references(text)
    return references.show_references(text, list_viewable(tx, numbers))


def show_waiting(tx: Transaction, waiting: Waiting | None) -> Waiting | None:
    """Return what a run waits for, with the other run only if the reader may view it."""
    if waiting is None or waiting.run is None or tx.view_rights is None:
        return waiting
    if list_viewable(tx, [waiting.run]):
        return replace(waiting, is_run_viewable=True)
    return replace(waiting, run=None)


@contextmanager
def viewing_as(tx: Transaction, rights: ViewRights) -> Generator[None]:
    """Read with the rights of a person in a block of a transaction of the service."""
    before, tx.view_rights = tx.view_rights, rights
    try:
        yield
    finally:
        tx.view_rights = before


def is_hidden(tx: Transaction, *, host: str | None, words: str | None) -> bool:
    """Return whether the rules hide all runs of this runbook on this host but the person's own.

    host, words: None means any host or runbook.
    """
    rights = tx.view_rights
    if rights is None or (host is None and words is None):
        return False
    known = rights.all_viewable.hosts
    for one in _list_runbooks(tx, rights) if words is None else [words]:
        for kind in rights.kinds:
            where = rights.list_viewable(one, kind)
            if host is None and (where.hosts or where.former_areas):
                return False
            if host in where.hosts or (
                host is not None and host not in known and where.former_areas
            ):
                return False
    return True


# The numbers of the runs that a person requested, edited or decided: few, so that a query with
# them reads no others.
OWN_RUNS_SQL = (
    "SELECT run.id FROM run WHERE run.requested_by = :view_me AND {fits} "
    "UNION ALL SELECT run.id FROM run WHERE run.editors != '[]' "
    "AND run.editors LIKE :view_edits ESCAPE '\\' "
    "UNION ALL SELECT decision.run FROM decision WHERE decision.person = :view_me "
    "UNION ALL SELECT run.id FROM decision JOIN run ON run.parent = decision.run "
    "WHERE decision.person = :view_me"
)


def _conditions(tx: Transaction) -> tuple[Condition, Condition]:
    """Return the conditions on runs and on entries, built once for a transaction."""
    if tx.view_rights is None:
        return _ALL, _ALL
    known = tx.conditions.get(tx.view_rights) or _build_conditions(tx, tx.view_rights)
    tx.conditions[tx.view_rights] = known
    return known


def _build_conditions(tx: Transaction, rights: ViewRights) -> tuple[Condition, Condition]:
    viewable = {
        (words, kind): rights.list_viewable(words, kind)
        for words in _list_runbooks(tx, rights)
        for kind in rights.kinds
    }
    if can_view_all(viewable, rights):
        return _ALL, _ALL
    groups: dict[ViewableScope, list[tuple[str, str]]] = {}
    for which, where in viewable.items():
        groups.setdefault(where, []).append(which)
    given: dict[str, object] = {
        "view_me": rights.person,
        "view_edits": f'%"{_escape_like(rights.person)}"%',
        "view_named": json.dumps(sorted(rights.runbooks or ())),
        "view_known": json.dumps(sorted(rights.all_viewable.hosts)),
    }
    fits = [_OWN]
    for n, (where, scopes) in enumerate(groups.items()):
        if where.hosts or where.former_areas:
            fits.append(_build_group_condition(tx, n, where, scopes, rights, given))
    runs = f"({' OR '.join(fits)})"
    if rights.runbooks is not None:
        runs = f"({runs} AND ({_OWN} OR {_build_sequence_condition(runs)}))"
    viewable_hosts = rights.all_viewable.hosts.intersection(*(where.hosts for where in groups))
    given["view_all_of"] = json.dumps(sorted(viewable_hosts))
    return Condition(runs, given), Condition(_build_entry_condition(tx, runs), given)


# A person may always view what they requested, edited or decided.
_OWN = (
    "run.requested_by = :view_me OR run.editors LIKE :view_edits ESCAPE '\\' "
    "OR EXISTS (SELECT 1 FROM decision WHERE decision.run = coalesce(run.parent, run.id) "
    "AND decision.person = :view_me)"
)


def _build_sequence_condition(runs: str) -> str:
    """Build the condition that every change of a sequence may be viewed, as it lists them all."""
    names = ", ".join(f"'{name}'" for name in sorted(SEQUENCES))
    part = re.sub(r"\brun\.", "part.", runs)
    hidden = f"SELECT 1 FROM run AS part WHERE part.parent = run.id AND NOT {part}"  # noqa: S608 - ours
    return f"run.runbook NOT IN ({names}) OR NOT EXISTS ({hidden})"


def _escape_like(word: str) -> str:
    """Escape a word for LIKE."""
    return "".join(f"\\{letter}" if letter in "\\%_" else letter for letter in word)


def _list_runbooks(tx: Transaction, rights: ViewRights) -> Sequence[str]:
    """Return the runbooks whose view rights have to be evaluated.

    These are the runbooks that rules name, and "" for any other, so that the right to view
    everything does not depend on the stored runs. If rules match parts of names, also the runbooks
    of all runs.
    """
    if rights.runbooks is None:
        return [""]
    if rights.compares_runbooks_only:
        return sorted({"", *rights.runbooks})
    stored = {
        words
        for (words,) in sql_text.fetch_rows(tx, sql_text.each_value_sql("run", "runbook"), {})
    }
    return sorted({"", *stored, *rights.runbooks})


def _build_group_condition(
    tx: Transaction,
    n: int,
    where: ViewableScope,
    scopes: Sequence[tuple[str, str]],
    rights: ViewRights,
    given: dict[str, object],
) -> str:
    """Build the condition on runs of runbooks that may be viewed on the same hosts."""
    given[f"view_hosts{n}"] = json.dumps(sorted(where.hosts))
    given[f"view_areas{n}"] = json.dumps(sorted(where.former_areas))
    parts: list[str] = []
    if rights.runbooks is not None:
        for kind in rights.kinds:
            name = f"view_words{n}{kind}"
            named = [words for words, each_kind in scopes if each_kind == kind]
            given[name] = json.dumps(named)
            which = f"run.runbook IN ({sql_text.list_parameter_sql(tx, name)})"
            if rights.compares_runbooks_only and "" in named:
                which += (
                    f" OR run.runbook NOT IN ({sql_text.list_parameter_sql(tx, 'view_named')})"
                )
            parts.append(f"(({which}) AND run.kind = '{kind}')" if kind else f"({which})")
    else:
        parts += [f"run.kind = '{kind}'" if kind else "1 = 1" for _, kind in scopes]
    which = " OR ".join(parts)
    if where == rights.all_viewable:
        return f"({which})"
    hosts, known = (
        sql_text.list_parameter_sql(tx, f"view_hosts{n}"),
        sql_text.list_parameter_sql(tx, "view_known"),
    )
    areas = sql_text.list_parameter_sql(tx, f"view_areas{n}")

    def on(host: str) -> str:
        return f"({host} IN ({hosts}) OR ({host} NOT IN ({known}) AND run.area IN ({areas})))"

    each = "json_each(run.hosts) AS one"
    if not tx.embedded:
        each = "json_array_elements_text(CAST(run.hosts AS json)) AS one(value)"
    on_all_hosts = f"NOT EXISTS (SELECT 1 FROM {each} WHERE NOT {on('one.value')})"  # noqa: S608 - ours
    roles = f"{PARENT}, {PARENT + PLAN_ONLY}"
    places = (
        f"CASE WHEN run.fan_out_role IN ({roles}) THEN {on_all_hosts} ELSE {on('run.host')} END"
    )
    return f"(({which}) AND {places})"


def _build_entry_condition(tx: Transaction, runs: str) -> str:
    """Build the condition on entries: about a run that may be viewed, or by the person.

    Of entries about no run, also those about a host whose runs may all be viewed.
    """
    viewable_hosts = sql_text.list_parameter_sql(tx, "view_all_of")
    of_run = f"EXISTS (SELECT 1 FROM run WHERE run.id = entry.run AND {runs})"  # noqa: S608 - ours
    of_host = f"(entry.run IS NULL AND entry.host IN ({viewable_hosts}))"
    return f"(entry.person = :view_me OR {of_run} OR {of_host})"
