"""Build a policy summary from the rulings of the rules. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from bot.model.approvals import ApprovalDemand, ApprovalRequirements
from bot.model.runbook_info import RunbookInfo
from bot.policy import Policy, Ruling
from bot.policy.cedar import DEFAULT_MAX_HOSTS
from bot.policy.explain import format_wait
from bot.policy.freezes import Freeze
from bot.policy.policy import Order
from bot.policy.summary import naming
from bot.policy.summary.model import (
    AppliedRule,
    AreaSummary,
    Clause,
    FreezeSummary,
    PeopleSummary,
    PolicySummary,
)
from bot.policy.summary.probes import (
    HostAndRequest,
    PolicyProbe,
    RequestKind,
    Variation,
    describe_variations,
    list_variations,
)

VariationProbes = Sequence[tuple[Variation, PolicyProbe]]
RulingsByRequester = Mapping[str, Mapping[HostAndRequest, Ruling]]

_ORDER_LABELS: Mapping[Order, str] = {
    "stop": "stop everything",
    "ban": "ban a person",
    "resume": "resume what another person stopped, and lift bans of another person",
}


def summarise_policy(
    policy: Policy, runbooks: Sequence[RunbookInfo], *, now: datetime, person: str = ""
) -> PolicySummary:
    """Return what everyone, or one person, may do.

    now: freezes are listed from this time on, and rules that depend on the date are evaluated for
    its week.
    """
    probe = PolicyProbe(policy, runbooks, now)
    others = [
        (one, PolicyProbe(policy, runbooks, now, one.circumstances))
        for one in list_variations(policy.mentions)
    ]
    rulings_by_requester = {like: probe.list_request_rulings(like) for like in probe.people}
    groups = [(person,)] if person else probe.people.values()
    chapters = [_build_chapter(probe, others, people, rulings_by_requester) for people in groups]
    return PolicySummary(
        version=policy.version,
        chapters=_merge_chapters(chapters, policy),
        areas=_summarise_areas(policy),
        freezes=summarise_freezes(policy, now),
        checks=sum(one.kind == "check" for one in runbooks),
        changes=sum(one.kind == "change" for one in runbooks),
        irreversible_changes=[
            one.name for one in runbooks if one.kind == "change" and not one.undo
        ],
        depends_on_date="now" in policy.mentions,
        lacks_duties=policy.lacks_duties,
    )


def _build_chapter(
    probe: PolicyProbe,
    variation_probes: VariationProbes,
    people: Sequence[str],
    rulings_by_requester: RulingsByRequester,
) -> PeopleSummary:
    usual = probe.list_request_rulings(people[0])
    clauses = _build_clauses(probe, people, usual) + _build_variation_clauses(
        probe, variation_probes, people
    )
    known = probe.policy.organisation.people
    return PeopleSummary(
        people={person: known[person].name for person in people},
        title=naming.name_roles(people, probe.policy),
        without_approval=[one for one in clauses if one.allowed and not one.required_approvals],
        with_approval=[one for one in clauses if one.required_approvals],
        refused=[one for one in clauses if not one.allowed],
        can_approve=_build_approval_clauses(probe, people, rulings_by_requester),
        can_view=_build_view_clauses(probe, people),
        break_glass=_build_break_glass_clauses(probe, people),
        administration=_build_order_clauses(probe, people[0]),
    )


def _merge_chapters(chapters: Iterable[PeopleSummary], policy: Policy) -> list[PeopleSummary]:
    """Merge people who may do the same for different reasons."""
    alike: dict[str, list[PeopleSummary]] = defaultdict(list)
    for one in chapters:
        alike[repr(replace(one, people={}, title=""))].append(one)
    found: list[PeopleSummary] = []
    for same in alike.values():
        people = {key: name for one in same for key, name in one.people.items()}
        by_name = dict(sorted(people.items(), key=lambda one: one[1]))
        title = naming.name_roles(list(by_name), policy)
        found.append(replace(same[0], people=by_name, title=title))
    return found


def _build_clauses(
    probe: PolicyProbe, people: Sequence[str], rulings: Mapping[HostAndRequest, Ruling]
) -> list[Clause]:
    """Return what these people, who have the same permissions, may do."""
    answers: dict[tuple[Ruling, object], dict[HostAndRequest, Ruling]] = defaultdict(dict)
    for place, ruling in rulings.items():
        same = _generalise_ruling(ruling, probe.policy.get_area(place[0]).name)
        answers[same, _build_approvers_key(probe, people, place, ruling)][place] = ruling
    found = [
        _build_clause(probe, people, block)
        for same in answers.values()
        for block in _split_into_blocks(same)
    ]
    return sorted(
        found, key=lambda one: (one.required_approvals, one.where != "everywhere", one.what)
    )


def _generalise_ruling(ruling: Ruling, area: str) -> Ruling:
    """Return the ruling with `owners` in place of the owners of this area."""
    demands = [
        ApprovalDemand(
            one.required_approvals,
            tuple(_generalise_groups(place, area) for place in one.group_sets),
        )
        for one in ruling.requirements.demands
    ]
    terms = replace(
        ruling.requirements,
        demands=tuple(demands),
        escalate_to=_generalise_groups(ruling.requirements.escalate_to, area),
    )
    return replace(ruling, requirements=terms)


def _generalise_groups(groups: Sequence[str], area: str) -> tuple[str, ...]:
    return tuple("owners" if group == f"area:{area}" else group for group in groups)


def _build_variation_clauses(
    probe: PolicyProbe, variation_probes: VariationProbes, people: Sequence[str]
) -> list[Clause]:
    """Return what differs under other circumstances."""
    usual = probe.list_request_rulings(people[0])
    alike: dict[tuple[str, str], list[Variation]] = defaultdict(list)
    clauses: dict[str, list[Clause]] = {}
    for one, other in variation_probes:
        changed = {
            place: _keep_new_rules(ruling, usual[place])
            for place, ruling in other.list_request_rulings(people[0]).items()
            # The limit of hosts is a note of the usual clause, so it is not repeated here.
            if ruling != usual[place] and one.circumstances.hosts <= usual[place].max_hosts
        }
        found = _build_clauses(other, people, changed)
        clauses[repr(found)] = found
        alike[one.kind, repr(found)].append(one)
    return [
        replace(clause, when=describe_variations(same))
        for (_, key), same in alike.items()
        for clause in clauses[key]
    ]


def _keep_new_rules(ruling: Ruling, usual: Ruling) -> Ruling:
    """Return the ruling with only the rules that the usual one has not, if there are any."""
    new = [one for one in _list_rules(ruling) if one[0] not in usual.rules]
    if not new:
        return ruling
    rules, notes = zip(*new, strict=True)
    return replace(ruling, rules=rules, policy_notes=notes)


def _build_break_glass_clauses(probe: PolicyProbe, people: Sequence[str]) -> list[Clause]:
    """Return what these people may do with break-glass."""
    answers = probe.list_break_glass_rulings(people[0])
    allowed = {place: ruling for place, ruling in answers.items() if ruling.allowed}
    return _build_clauses(probe, people, allowed)


def _build_view_clauses(probe: PolicyProbe, people: Sequence[str]) -> list[Clause]:
    """Return which runs of other people these people can view."""
    answers = probe.list_view_rulings(people[0])
    allowed = {place: ruling for place, ruling in answers.items() if ruling.allowed}
    return _build_clauses(probe, people, allowed)


def _build_order_clauses(probe: PolicyProbe, person: str) -> list[Clause]:
    found: list[Clause] = []
    for order, words in _ORDER_LABELS.items():
        ruling = probe.policy.get_order_ruling(person, order)
        if ruling.allowed:
            notes = (
                ("needs a second factor, on the web pages",)
                if ruling.requires_second_factor
                else ()
            )
            found.append(Clause(words, "", rules=_list_rules(ruling), notes=notes))
    return found


def _list_approvers(
    probe: PolicyProbe, people: Sequence[str], place: HostAndRequest, ruling: Ruling
) -> frozenset[str]:
    """Return who can approve; people of one group can approve each other's requests."""
    approvers = probe.list_approvers(place, ruling)
    return approvers - set(people) if len(people) == 1 else approvers


def _build_approvers_key(
    probe: PolicyProbe, people: Sequence[str], place: HostAndRequest, ruling: Ruling
) -> object:
    """Return the approvers in a form that is the same for areas with different owners."""
    if not ruling.allowed or not ruling.required_approvals:
        return ""
    approvers = _list_approvers(probe, people, place, ruling)
    others = frozenset(probe.policy.get_area(place[0]).owners) - frozenset(people)
    return "owners" if approvers and approvers - frozenset(people) == others else approvers


def _split_into_blocks(
    rulings: Mapping[HostAndRequest, Ruling],
) -> list[dict[HostAndRequest, Ruling]]:
    """Split the pairs by host or by request, whichever gives fewer blocks."""
    by_host: dict[str, set[RequestKind]] = defaultdict(set)
    by_request: dict[RequestKind, set[str]] = defaultdict(set)
    for host, request in rulings:
        by_host[host].add(request)
        by_request[request].add(host)
    rows: dict[object, dict[HostAndRequest, Ruling]] = defaultdict(dict)
    columns: dict[object, dict[HostAndRequest, Ruling]] = defaultdict(dict)
    for place, ruling in rulings.items():
        rows[frozenset(by_host[place[0]])][place] = ruling
        columns[frozenset(by_request[place[1]])][place] = ruling
    fewer = columns if len(columns) < len(rows) else rows
    return list(fewer.values())


def _build_clause(
    probe: PolicyProbe, people: Sequence[str], block: Mapping[HostAndRequest, Ruling]
) -> Clause:
    what, where = _name_places(probe, block)
    ruling = next(iter(block.values()))
    waits = ruling.allowed and ruling.required_approvals
    return Clause(
        what=what,
        where=where,
        allowed=ruling.allowed,
        required_approvals=ruling.required_approvals if waits else 0,
        approvals_from=_describe_approver_groups(probe, block) if waits else "",
        approvers=_group_approvers_by_area(probe, people, block) if waits else None,
        areas_short_of_approvers=_list_areas_short_of_approvers(probe, people, block)
        if waits
        else (),
        rules=_list_rules(ruling),
        notes=_list_notes(probe, block) if ruling.allowed else (),
    )


def _list_rules(ruling: Ruling) -> Sequence[AppliedRule]:
    return tuple(zip(ruling.rules, ruling.policy_notes, strict=False))


def _name_places(probe: PolicyProbe, host_requests: Iterable[HostAndRequest]) -> tuple[str, str]:
    hosts = {name for host, _ in host_requests for name in probe.hosts[host]}
    requests = {request for _, one in host_requests for request in probe.requests[one]}
    every = [request for same in probe.requests.values() for request in same]
    return naming.name_requests(requests, every), naming.name_hosts(hosts, probe.policy)


def _list_notes(probe: PolicyProbe, block: Mapping[HostAndRequest, Ruling]) -> Sequence[str]:
    """Return further conditions, in words."""
    ruling = next(iter(block.values()))
    terms = ruling.requirements
    notes: list[str] = []
    if terms.requires_reason:
        notes.append(
            "requests and approvals need a reason" if terms.demands else "requests need a reason"
        )
    if terms.requires_ticket:
        notes.append("requests name an approved change ticket")
    if terms.requires_second_factor:
        notes.append("approvals need a second factor, on the web pages")
    if any(one.requires_review for one in block.values()):
        notes.append("another person reviews each run within a day")
    if terms.remind_after:
        notes.append(f"approvers are reminded after {format_wait(terms.remind_after)}")
    if terms.escalate_to:
        delay = f" after {format_wait(2 * terms.remind_after)}" if terms.remind_after else ""
        escalated = {
            place: replace(one, requirements=_build_escalated_requirements(one.requirements))
            for place, one in block.items()
        }
        notes.append(
            f"without a decision, {_describe_approver_groups(probe, escalated)} may also "
            f"approve{delay}"
        )
    if ruling.max_hosts != DEFAULT_MAX_HOSTS:
        hosts = "1 host" if ruling.max_hosts == 1 else f"{ruling.max_hosts} hosts"
        notes.append(f"at most {hosts} per request")
    return tuple(notes)


def _build_escalated_requirements(requirements: ApprovalRequirements) -> ApprovalRequirements:
    """Return requirements that only the escalation groups can meet."""
    return ApprovalRequirements(demands=(ApprovalDemand(1, (requirements.escalate_to,)),))


def _describe_approver_groups(probe: PolicyProbe, block: Mapping[HostAndRequest, Ruling]) -> str:
    """Return whose approval counts, in words; for several areas, `the owners of the area`."""
    groups: dict[str, str] = {}
    for place, ruling in block.items():
        title = probe.policy.get_area(place[0]).title
        groups[title] = probe.policy.describe_approver_groups(ruling.requirements)
    if len(groups) == 1:
        return next(iter(groups.values()))
    generalised = {
        words.replace(f"the owners of {title}", "the owners of the area")
        for title, words in groups.items()
    }
    return naming.join_names(sorted(generalised), "or")


def _group_approvers_by_area(
    probe: PolicyProbe, people: Sequence[str], block: Mapping[HostAndRequest, Ruling]
) -> Mapping[str, Sequence[str]]:
    known = probe.policy.organisation.people
    found: dict[str, Sequence[str]] = {}
    for place, ruling in block.items():
        approvers = _list_approvers(probe, people, place, ruling)
        found[probe.policy.get_area(place[0]).title] = sorted(known[one].name for one in approvers)
    return found


def _list_areas_short_of_approvers(
    probe: PolicyProbe, people: Sequence[str], block: Mapping[HostAndRequest, Ruling]
) -> Sequence[str]:
    """Return the areas without enough approvers for a request of one of these people."""
    found: dict[str, None] = {}
    for place, ruling in block.items():
        approvers = probe.list_approvers(place, ruling)
        others = [approvers - {person} for person in people]
        if not all(probe.policy.is_met(ruling.requirements, keys) for keys in others):
            found[probe.policy.get_area(place[0]).title] = None
    return tuple(found)


def _build_approval_clauses(
    probe: PolicyProbe, people: Sequence[str], rulings_by_requester: RulingsByRequester
) -> list[Clause]:
    """Return which requests of others these people can approve."""
    rules: dict[HostAndRequest, set[AppliedRule]] = defaultdict(set)
    for requester, rulings in rulings_by_requester.items():
        if probe.people[requester] != (people[0],):
            for place, ruling in rulings.items():
                rules[place] |= _list_approval_rules(probe, people[0], place, ruling)
    answers: dict[frozenset[AppliedRule], dict[HostAndRequest, Ruling]] = defaultdict(dict)
    for place, applied in rules.items():
        answers[frozenset(applied)][place] = Ruling(allowed=True)
    answers.pop(frozenset(), None)
    found = [
        Clause(*_name_places(probe, block), rules=tuple(sorted(applied)))
        for applied, places in answers.items()
        for block in _split_into_blocks(places)
    ]
    return sorted(found, key=lambda one: (one.where != "everywhere", one.what))


def _list_approval_rules(
    probe: PolicyProbe, person: str, place: HostAndRequest, ruling: Ruling
) -> set[AppliedRule]:
    """Return the rules that let this person approve what was ruled so; none if they do not."""
    if not ruling.allowed or not ruling.required_approvals:
        return set()
    answer = probe.get_approval_ruling(person, place, ruling)
    return set(_list_rules(answer)) if answer.allowed else set()


def _summarise_areas(policy: Policy) -> list[AreaSummary]:
    people = policy.organisation.people
    return [
        AreaSummary(
            name=area.name,
            title=area.title,
            owners=[people[owner].name for owner in area.owners],
            hosts=sorted(host.name for host in policy.inventory if host.area == area.name),
        )
        for area in policy.organisation.areas.values()
    ]


def summarise_freezes(policy: Policy, now: datetime) -> list[FreezeSummary]:
    """Return the active and upcoming freezes, by their beginning."""
    found = [_summarise_freeze(policy, freeze, now) for freeze in policy.freezes.freezes]
    return sorted((one for one in found if one), key=lambda one: one.begins_at)


def _summarise_freeze(policy: Policy, freeze: Freeze, now: datetime) -> FreezeSummary | None:
    period = freeze.get_current_or_next_period(now)
    if period is None:
        return None
    begins, ends = period
    titles = [policy.organisation.areas[area].title for area in freeze.areas]
    return FreezeSummary(
        name=freeze.name,
        where=f"changes of {naming.join_names(titles)}" if titles else "all changes",
        begins_at=begins,
        ends_at=ends,
        is_active=begins <= now,
        recurrence=freeze.recurrence,
        exceptions=tuple(freeze.but),
    )
