"""What the person for whom a transaction reads may view, as a condition that queries carry.

This is the one place where the right to view is applied to stored runs and entries. A transaction
of the service itself has no sight and sees everything.
"""

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import select

from bot.db import sql_text, tables
from bot.db.condition import Condition
from bot.db.database import Transaction
from bot.db.tables import PARENT
from bot.model.view_rights import ViewableScope, ViewRights, can_view_all


class NotEverything(Exception):
    """It takes the right to view everything. The message says what takes it."""


_ALL = Condition()


def runs_condition(tx: Transaction) -> Condition:
    """Return what a row of the table `run` must fit."""
    return _conditions(tx)[0]


def entries_condition(tx: Transaction) -> Condition:
    """Return what a row of the table `entry` must fit."""
    return _conditions(tx)[1]


def can_view_everything(tx: Transaction) -> bool:
    return not runs_condition(tx).sql


def require_everything(tx: Transaction, what: str) -> None:
    """Raise NotEverything unless all may be viewed. what: the subject of the sentence."""
    if not can_view_everything(tx):
        raise NotEverything(
            f"{what} takes the right to view every run. Ask somebody who has it, or have a rule "
            'with action == Action::"view" permit it.'
        )


def list_viewable(tx: Transaction, numbers: Iterable[int]) -> frozenset[int]:
    """Return which of these runs may be viewed."""
    wanted, condition = frozenset(numbers), runs_condition(tx)
    if not condition.sql or not wanted:
        return wanted
    query = select(tables.run.c.id).where(tables.run.c.id.in_(wanted), condition.clause())
    return frozenset(tx.sql.execute(query).scalars())


def hide(tx: Transaction, *, host: str | None, words: str | None) -> bool:
    """Say whether the rules show no run of this runbook on this host, whatever there is: only the
    person's own are left. None means any."""
    sight = tx.view_rights
    if sight is None or (host is None and words is None):
        return False
    known = sight.all_viewable.hosts
    for one in _runbooks(tx, sight) if words is None else [words]:
        for kind in sight.kinds:
            where = sight.list_viewable(one, kind)
            if host is None and (where.hosts or where.former_areas):
                return False
            if host in where.hosts or (
                host is not None and host not in known and where.former_areas
            ):
                return False
    return True


# All runs that a person asked for, edited or decided, of which there are few, and some more: by
# their numbers, so that no more than these are looked at.
OWN = (
    "SELECT run.id FROM run WHERE run.requested_by = :sight_me AND {fits} "
    "UNION ALL SELECT run.id FROM run WHERE run.editors != '[]' "
    "AND run.editors LIKE :sight_edits ESCAPE '\\' "
    "UNION ALL SELECT decision.run FROM decision WHERE decision.person = :sight_me "
    "UNION ALL SELECT run.id FROM decision JOIN run ON run.parent = decision.run "
    "WHERE decision.person = :sight_me"
)


def _conditions(tx: Transaction) -> tuple[Condition, Condition]:
    """Return the conditions on runs and on entries, put together once for a transaction."""
    if tx.view_rights is None:
        return _ALL, _ALL
    # Written here alone, as soon as it is asked for.
    known = tx.conditions.get(tx.view_rights) or _drawn(tx, tx.view_rights)
    tx.conditions[tx.view_rights] = known
    return known


def _drawn(tx: Transaction, sight: ViewRights) -> tuple[Condition, Condition]:
    viewable = {
        (words, kind): sight.list_viewable(words, kind)
        for words in _runbooks(tx, sight)
        for kind in sight.kinds
    }
    if can_view_all(viewable, sight):
        return _ALL, _ALL
    groups: dict[ViewableScope, list[tuple[str, str]]] = {}
    for which, where in viewable.items():
        groups.setdefault(where, []).append(which)
    given: dict[str, object] = {
        "sight_me": sight.person,
        "sight_edits": f'%"{_literal(sight.person)}"%',
        "sight_named": json.dumps(sorted(sight.runbooks or ())),
        "sight_known": json.dumps(sorted(sight.all_viewable.hosts)),
    }
    fits = [_OWN]
    for n, (where, whiches) in enumerate(groups.items()):
        if where.hosts or where.former_areas:
            fits.append(_of_group(tx, n, where, whiches, sight, given))
    runs = f"({' OR '.join(fits)})"
    wholly = sight.all_viewable.hosts.intersection(*(where.hosts for where in groups))
    given["sight_wholly"] = json.dumps(sorted(wholly))
    return Condition(runs, given), Condition(_entries(tx, runs), given)


# Somebody always sees what they asked for, edited or decided.
_OWN = (
    "run.requested_by = :sight_me OR run.editors LIKE :sight_edits ESCAPE '\\' "
    "OR EXISTS (SELECT 1 FROM decision WHERE decision.run = coalesce(run.parent, run.id) "
    "AND decision.person = :sight_me)"
)


def _literal(word: str) -> str:
    """Return a word in which no letter means another to LIKE."""
    return "".join(f"\\{letter}" if letter in "\\%_" else letter for letter in word)


def _runbooks(tx: Transaction, sight: ViewRights) -> Sequence[str]:
    """Return the runbooks to be decided about: those that rules name, and the empty name for any
    other, so that a right to everything does not depend on what has been asked for so far.

    Where rules look at parts of names, those of all runs too.
    """
    if sight.runbooks is None:
        return [""]
    if sight.compares_runbooks_only:
        return sorted({"", *sight.runbooks})
    stored = {
        words
        for (words,) in sql_text.fetch_rows(tx, sql_text.each_value_sql("run", "runbook"), {})
    }
    return sorted({"", *stored, *sight.runbooks})


def _of_group(
    tx: Transaction,
    n: int,
    where: ViewableScope,
    whiches: Sequence[tuple[str, str]],
    sight: ViewRights,
    given: dict[str, object],
) -> str:
    """Return what runs of some runbooks fit, which may be viewed in the same places."""
    given[f"sight_hosts{n}"] = json.dumps(sorted(where.hosts))
    given[f"sight_areas{n}"] = json.dumps(sorted(where.former_areas))
    parts: list[str] = []
    if sight.runbooks is not None:
        for kind in sight.kinds:
            name = f"sight_words{n}{kind}"
            named = [words for words, of in whiches if of == kind]
            given[name] = json.dumps(named)
            which = f"run.runbook IN ({sql_text.list_parameter_sql(tx, name)})"
            if sight.compares_runbooks_only and "" in named:
                which += (
                    f" OR run.runbook NOT IN ({sql_text.list_parameter_sql(tx, 'sight_named')})"
                )
            parts.append(f"(({which}) AND run.kind = '{kind}')" if kind else f"({which})")
    else:
        parts += [f"run.kind = '{kind}'" if kind else "1 = 1" for _, kind in whiches]
    which = " OR ".join(parts)
    if where == sight.all_viewable:
        return f"({which})"
    hosts, known = (
        sql_text.list_parameter_sql(tx, f"sight_hosts{n}"),
        sql_text.list_parameter_sql(tx, "sight_known"),
    )
    areas = sql_text.list_parameter_sql(tx, f"sight_areas{n}")

    def on(host: str) -> str:
        return f"({host} IN ({hosts}) OR ({host} NOT IN ({known}) AND run.area IN ({areas})))"

    each = "json_each(run.hosts) AS one"
    if not tx.embedded:
        each = "json_array_elements_text(CAST(run.hosts AS json)) AS one(value)"
    whole = f"NOT EXISTS (SELECT 1 FROM {each} WHERE NOT {on('one.value')})"  # noqa: S608 - ours
    places = f"CASE WHEN run.fan_out_role = {PARENT} THEN {whole} ELSE {on('run.host')} END"
    return f"(({which}) AND {places})"


def _entries(tx: Transaction, runs: str) -> str:
    """Return the condition on entries: their run is seen, or they are the person's own.

    Of those that tell of no run, also those about a host of which every run is seen.
    """
    wholly = sql_text.list_parameter_sql(tx, "sight_wholly")
    of_run = f"EXISTS (SELECT 1 FROM run WHERE run.id = entry.run AND {runs})"  # noqa: S608 - ours
    of_host = f"(entry.run IS NULL AND entry.host IN ({wholly}))"
    return f"(entry.person = :sight_me OR {of_run} OR {of_host})"
