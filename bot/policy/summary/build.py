"""Drafting: the rules' answers become a charter. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from bot.model.approvals import ApprovalRequirements, Demand
from bot.model.runbook_info import RunbookInfo
from bot.policy import Policy, Ruling
from bot.policy.cedar import CEILING
from bot.policy.explain import format_wait
from bot.policy.freezes import Freeze
from bot.policy.policy import Order
from bot.policy.summary import naming
from bot.policy.summary.model import (
    AreaSummary,
    Chapter,
    Clause,
    FreezeSummary,
    PolicySummary,
    Rule,
)
from bot.policy.summary.probes import (
    Place,
    PolicyProbe,
    RequestKind,
    Variation,
    describe_variations,
    list_variations,
)

Others = Sequence[tuple[Variation, PolicyProbe]]
Askers = Mapping[str, Mapping[Place, Ruling]]

_ORDERS: Mapping[Order, str] = {
    "stop": "stop everything",
    "ban": "shut a person out",
    "resume": "let go on what somebody else stopped, and let in whom somebody else shut out",
}


def summarise_policy(
    policy: Policy, leaflets: Sequence[RunbookInfo], *, now: datetime, person: str = ""
) -> PolicySummary:
    """Ask the rules about everybody, or about one person, and put the answers into words.

    now: freezes are told from here on; rules that look at the date are asked about its week.
    """
    inquiry = PolicyProbe(policy, leaflets, now)
    others = [
        (one, PolicyProbe(policy, leaflets, now, one.circumstances))
        for one in list_variations(policy.mentioned)
    ]
    askers = {like: inquiry.rulings(like) for like in inquiry.people}
    groups = [(person,)] if person else inquiry.people.values()
    chapters = [_chapter(inquiry, others, people, askers) for people in groups]
    return PolicySummary(
        version=policy.version,
        chapters=_merged(chapters, policy),
        domains=_domains(policy),
        freezes=list_freezes(policy, now),
        checks=sum(one.kind == "check" for one in leaflets),
        changes=sum(one.kind == "change" for one in leaflets),
        lasting=[one.words for one in leaflets if one.kind == "change" and not one.undo],
        dated="now" in policy.mentioned,
    )


def _chapter(
    inquiry: PolicyProbe, others: Others, people: Sequence[str], askers: Askers
) -> Chapter:
    usual = inquiry.rulings(people[0])
    clauses = _clauses(inquiry, people, usual) + _otherwise(inquiry, others, people)
    known = inquiry.policy.household.people
    return Chapter(
        people={person: known[person].name for person in people},
        title=naming.name_roles(people, inquiry.policy),
        at_once=[one for one in clauses if one.allowed and not one.approvals],
        asks=[one for one in clauses if one.approvals],
        refused=[one for one in clauses if not one.allowed],
        approves=_approved(inquiry, people, askers),
        emergency=_emergency(inquiry, people),
        orders=_orders(inquiry, people[0]),
        views=_views(inquiry, people),
    )


def _merged(chapters: Iterable[Chapter], policy: Policy) -> list[Chapter]:
    """Tell together of people who may do the same for different reasons."""
    alike: dict[str, list[Chapter]] = defaultdict(list)
    for one in chapters:
        alike[repr(replace(one, people={}, title=""))].append(one)
    found: list[Chapter] = []
    for same in alike.values():
        people = {key: name for one in same for key, name in one.people.items()}
        by_name = dict(sorted(people.items(), key=lambda one: one[1]))
        title = naming.name_roles(list(by_name), policy)
        found.append(replace(same[0], people=by_name, title=title))
    return found


def _clauses(
    inquiry: PolicyProbe, people: Sequence[str], places: Mapping[Place, Ruling]
) -> list[Clause]:
    """Say what these people, who are alike, may do at the places."""
    answers: dict[tuple[Ruling, object], dict[Place, Ruling]] = defaultdict(dict)
    for place, ruling in places.items():
        same = _anywhere(ruling, inquiry.policy.area_of(place[0]).name)
        answers[same, _signature(inquiry, people, place, ruling)][place] = ruling
    found = [
        _clause(inquiry, people, block) for same in answers.values() for block in _blocks(same)
    ]
    return sorted(found, key=lambda one: (one.approvals, one.where != "everywhere", one.what))


def _anywhere(ruling: Ruling, area: str) -> Ruling:
    """Return the ruling as it is in any area: with `owners` for the owners of this one."""
    demands = [
        Demand(one.approvals, tuple(_groups(place, area) for place in one.each))
        for one in ruling.terms.demands
    ]
    terms = replace(
        ruling.terms,
        demands=tuple(demands),
        escalate=_groups(ruling.terms.escalate, area),
    )
    return replace(ruling, terms=terms)


def _groups(groups: Sequence[str], area: str) -> tuple[str, ...]:
    return tuple("owners" if group == f"area:{area}" else group for group in groups)


def _otherwise(inquiry: PolicyProbe, others: Others, people: Sequence[str]) -> list[Clause]:
    """Say what is different under other circumstances."""
    usual = inquiry.rulings(people[0])
    alike: dict[tuple[str, str], list[Variation]] = defaultdict(list)
    clauses: dict[str, list[Clause]] = {}
    for one, other in others:
        changed = {
            place: said
            for place, said in other.rulings(people[0]).items()
            # That more hosts than the ceiling are too many is told with the ceiling.
            if said != usual[place] and one.circumstances.hosts <= usual[place].ceiling
        }
        found = _clauses(other, people, changed)
        clauses[repr(found)] = found
        alike[one.kind, repr(found)].append(one)
    return [
        replace(clause, when=describe_variations(same))
        for (_, key), same in alike.items()
        for clause in clauses[key]
    ]


def _emergency(inquiry: PolicyProbe, people: Sequence[str]) -> list[Clause]:
    """Say what these people may do in an emergency, without approvals and through freezes."""
    answers = inquiry.emergencies(people[0])
    allowed = {place: ruling for place, ruling in answers.items() if ruling.allowed}
    return _clauses(inquiry, people, allowed)


def _views(inquiry: PolicyProbe, people: Sequence[str]) -> list[Clause]:
    """Say which runs of others these people may view."""
    answers = inquiry.views(people[0])
    allowed = {place: ruling for place, ruling in answers.items() if ruling.allowed}
    return _clauses(inquiry, people, allowed)


def _orders(inquiry: PolicyProbe, person: str) -> list[Clause]:
    found: list[Clause] = []
    for order, words in _ORDERS.items():
        ruling = inquiry.policy.may_order(person, order)
        if ruling.allowed:
            notes = ("it takes a second factor, on the web pages",) if ruling.step_up else ()
            found.append(Clause(words, "", rules=_rules(ruling), notes=notes))
    return found


def _able(
    inquiry: PolicyProbe, people: Sequence[str], place: Place, ruling: Ruling
) -> frozenset[str]:
    """Return who could approve; of several who are alike, each for the others."""
    able = inquiry.approvers(place, ruling)
    return able - set(people) if len(people) == 1 else able


def _signature(
    inquiry: PolicyProbe, people: Sequence[str], place: Place, ruling: Ruling
) -> object:
    """Return who could approve in a form that is the same in areas with other owners."""
    if not ruling.allowed or not ruling.approvals:
        return ""
    able = _able(inquiry, people, place, ruling)
    others = frozenset(inquiry.policy.area_of(place[0]).owners) - frozenset(people)
    return "owners" if able and able - frozenset(people) == others else able


def _blocks(places: Mapping[Place, Ruling]) -> list[dict[Place, Ruling]]:
    """Split the places into as few blocks of hosts and deeds as can be had in one go."""
    by_host: dict[str, set[RequestKind]] = defaultdict(set)
    by_deed: dict[RequestKind, set[str]] = defaultdict(set)
    for host, deed in places:
        by_host[host].add(deed)
        by_deed[deed].add(host)
    rows: dict[object, dict[Place, Ruling]] = defaultdict(dict)
    columns: dict[object, dict[Place, Ruling]] = defaultdict(dict)
    for place, ruling in places.items():
        rows[frozenset(by_host[place[0]])][place] = ruling
        columns[frozenset(by_deed[place[1]])][place] = ruling
    fewer = columns if len(columns) < len(rows) else rows
    return list(fewer.values())


def _clause(inquiry: PolicyProbe, people: Sequence[str], block: Mapping[Place, Ruling]) -> Clause:
    what, where = _named(inquiry, block)
    ruling = next(iter(block.values()))
    waits = ruling.allowed and ruling.approvals
    return Clause(
        what=what,
        where=where,
        allowed=ruling.allowed,
        approvals=ruling.approvals if waits else 0,
        whose=_whose(inquiry, block) if waits else "",
        approvers=_by_area(inquiry, people, block) if waits else None,
        short=_short(inquiry, people, block) if waits else (),
        rules=_rules(ruling),
        notes=_notes(inquiry, block) if ruling.allowed else (),
    )


def _rules(ruling: Ruling) -> Sequence[Rule]:
    return tuple(zip(ruling.rules, ruling.says, strict=False))


def _named(inquiry: PolicyProbe, places: Iterable[Place]) -> tuple[str, str]:
    hosts = {name for host, _ in places for name in inquiry.hosts[host]}
    deeds = {deed for _, one in places for deed in inquiry.deeds[one]}
    every = [deed for same in inquiry.deeds.values() for deed in same]
    return naming.name_requests(deeds, every), naming.name_hosts(hosts, inquiry.policy)


def _notes(inquiry: PolicyProbe, block: Mapping[Place, Ruling]) -> Sequence[str]:
    """Return what else holds, in words."""
    ruling = next(iter(block.values()))
    terms = ruling.terms
    notes: list[str] = []
    if terms.reason:
        notes.append(
            "asking and approving take a reason" if terms.demands else "asking takes a reason"
        )
    if terms.step_up:
        notes.append("whoever approves shows a second factor, on the web pages")
    if terms.patience:
        notes.append(f"approvers are reminded after {format_wait(terms.patience)}")
    if terms.escalate:
        late = f" after {format_wait(2 * terms.patience)}" if terms.patience else ""
        instead = {place: replace(one, terms=_next(one.terms)) for place, one in block.items()}
        notes.append(f"if nobody decides, {_whose(inquiry, instead)} may approve too{late}")
    if ruling.ceiling != CEILING:
        hosts = "one host" if ruling.ceiling == 1 else f"at most {ruling.ceiling} hosts"
        notes.append(f"{hosts} in one request")
    return tuple(notes)


def _next(terms: ApprovalRequirements) -> ApprovalRequirements:
    """Return terms that only the next group could meet."""
    return ApprovalRequirements(demands=(Demand(1, (terms.escalate,)),))


def _whose(inquiry: PolicyProbe, block: Mapping[Place, Ruling]) -> str:
    """Return whose approval in words; of several areas, `the owners of the area`."""
    said: dict[str, str] = {}
    for place, ruling in block.items():
        title = inquiry.policy.area_of(place[0]).title
        said[title] = inquiry.policy.whose(ruling.terms)
    if len(said) == 1:
        return next(iter(said.values()))
    plain = {
        words.replace(f"the owners of {title}", "the owners of the area")
        for title, words in said.items()
    }
    return naming.join_names(sorted(plain), "or")


def _by_area(
    inquiry: PolicyProbe, people: Sequence[str], block: Mapping[Place, Ruling]
) -> Mapping[str, Sequence[str]]:
    known = inquiry.policy.household.people
    found: dict[str, Sequence[str]] = {}
    for place, ruling in block.items():
        able = _able(inquiry, people, place, ruling)
        found[inquiry.policy.area_of(place[0]).title] = sorted(known[one].name for one in able)
    return found


def _short(
    inquiry: PolicyProbe, people: Sequence[str], block: Mapping[Place, Ruling]
) -> Sequence[str]:
    """Return the areas where all who could approve would not be enough for one of the askers."""
    found: dict[str, None] = {}
    for place, ruling in block.items():
        able = inquiry.approvers(place, ruling)
        others = [able - {person} for person in people]
        if not all(inquiry.policy.met(ruling.terms, keys) for keys in others):
            found[inquiry.policy.area_of(place[0]).title] = None
    return tuple(found)


def _approved(inquiry: PolicyProbe, people: Sequence[str], askers: Askers) -> list[Clause]:
    """Say what others ask for and these people may approve."""
    rules: dict[Place, set[Rule]] = defaultdict(set)
    for asker, rulings in askers.items():
        if inquiry.people[asker] != (people[0],):
            for place, ruling in rulings.items():
                rules[place] |= _approval(inquiry, people[0], place, ruling)
    answers: dict[frozenset[Rule], dict[Place, Ruling]] = defaultdict(dict)
    for place, applied in rules.items():
        answers[frozenset(applied)][place] = Ruling(allowed=True)
    answers.pop(frozenset(), None)
    found = [
        Clause(*_named(inquiry, block), rules=tuple(sorted(applied)))
        for applied, places in answers.items()
        for block in _blocks(places)
    ]
    return sorted(found, key=lambda one: (one.where != "everywhere", one.what))


def _approval(inquiry: PolicyProbe, person: str, place: Place, ruling: Ruling) -> set[Rule]:
    """Return the rules that let this person approve what was ruled so; none if they do not."""
    if not ruling.allowed or not ruling.approvals:
        return set()
    answer = inquiry.approval(person, place, ruling)
    return set(_rules(answer)) if answer.allowed else set()


def _domains(policy: Policy) -> list[AreaSummary]:
    people = policy.household.people
    return [
        AreaSummary(
            name=area.name,
            title=area.title,
            owners=[people[owner].name for owner in area.owners],
            hosts=sorted(host.name for host in policy.inventory if host.area == area.name),
        )
        for area in policy.household.areas.values()
    ]


def list_freezes(policy: Policy, now: datetime) -> list[FreezeSummary]:
    """Return the freezes that hold or come, the first first."""
    found = [_frost(policy, freeze, now) for freeze in policy.freezes.freezes]
    return sorted((one for one in found if one), key=lambda one: one.begins)


def _frost(policy: Policy, freeze: Freeze, now: datetime) -> FreezeSummary | None:
    stretch = freeze.stretch(now)
    if stretch is None:
        return None
    begins, ends = stretch
    titles = [policy.household.areas[area].title for area in freeze.areas]
    return FreezeSummary(
        name=freeze.name,
        where=f"changes of {naming.join_names(titles)}" if titles else "all changes",
        begins=begins,
        ends=ends,
        holds=begins <= now,
        returns=freeze.returns,
        but=tuple(freeze.but),
    )
