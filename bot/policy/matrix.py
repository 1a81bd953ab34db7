"""The policy as a matrix: what each group of people may do on which hosts. Pure.

The rules are evaluated for a request on the web, for one host, on a Wednesday at noon, outside
freezes. Rules that depend on anything else are listed beside it. People, runbooks and hosts that
the rules treat alike are evaluated once.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from bot.model.approvals import ApprovalDemand, ApprovalRequirements
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.model.text import format_count, format_sentence, join_names
from bot.model.times import SECOND, to_datetime
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.cedar import DEFAULT_MAX_HOSTS, ConditionalRule
from bot.policy.explain import NO_APPROVER, format_approvals, format_wait
from bot.policy.freezes import FreezeList, FreezePeriod
from bot.policy.oncall import NO_DUTIES
from bot.policy.policy import Order
from bot.policy.signers import SigningPerson, build_signing_person
from connectors.inventory import Host

_WEDNESDAY, _NOON = 2, 12
_MAX_NAMES = 12
_NOUNS = ("check", "reversible change", "irreversible change")
_ORDERS: Mapping[Order, str] = {
    "stop": "stop everything",
    "ban": "ban a person",
    "resume": "resume what another person stopped, and lift bans of another person",
}


@dataclass(frozen=True)
class RequestKind:
    """A kind of request."""

    runbook: str
    kind: str
    reversible: bool = True
    """Whether every step has an undo."""

    @property
    def noun(self) -> str:
        return _NOUNS[0 if self.kind == "check" else 1 if self.reversible else 2]


Place = tuple[str, RequestKind]
"""A host and a request for it."""


@dataclass(frozen=True)
class Rights:
    """What some people may do with some requests on some hosts."""

    answer: str
    """`allowed`, `approval` or `refused`."""
    what: str = ""
    """The requests, in words: `every check`."""
    where: str = ""
    """The areas and hosts, in words."""
    required_approvals: int = 0
    approvals_from: str = ""
    """Whose approvals count, in words."""
    approvers: Sequence[str] = ()
    """The names of the people who can approve it."""
    has_enough_approvers: bool = True
    notes: Sequence[str] = ()
    """Further terms of a request, in words."""
    can_approve: bool = False
    """Whether they can approve and deny it if others request it."""
    can_view: bool = False
    """Whether they can view it if others request it."""
    can_break_glass: bool = False
    signs_requests: bool = False
    """Whether they sign what they request."""
    signs_approvals: bool = False
    """Whether they sign what they approve."""
    lacks_keys: bool = False
    """Whether enough people could approve it, and too few of them have a signing key."""
    rules: Sequence[tuple[str, str]] = ()
    """The name and the description of each rule that applies."""

    @property
    def label(self) -> str:
        """The answer to a request: `may`, `1 approval`."""
        if self.answer != "approval":
            return "may" if self.answer == "allowed" else "may not"
        return format_approvals(self.required_approvals)

    @property
    def sentence(self) -> str:
        """The answer with its approvers: `1 approval from the owners of the edge: Adam`."""
        if self.answer != "approval":
            return self.label
        names = join_names(shorten_names(self.approvers), "or") if self.approvers else NO_APPROVER
        if self.approvers and not self.has_enough_approvers:
            why = "with signing keys" if self.lacks_keys else "under the current policy"
            names += f", too few {why}"
        return f"{self.label} from {self.approvals_from}: {names}"

    @property
    def others(self) -> str:
        """What they may do with requests of others, in words."""
        rights = {"approve": self.can_approve, "view": self.can_view}
        return ", ".join(right for right, applies in rights.items() if applies) or "none"

    @property
    def terms(self) -> Sequence[str]:
        """The notes, and whether they may use break-glass."""
        return [*self.notes, *["they may use break-glass"] * self.can_break_glass]


PlaceRights = tuple[tuple[Place, Rights], ...]


@dataclass(frozen=True)
class Row:
    """Requests and hosts about which each group of people has one answer."""

    what: str
    where: str
    noun: str
    """The kind of request: `check`, `reversible change` or `irreversible change`."""
    runbooks: Set[str]
    hosts: Set[str]
    cells: Sequence[Rights]


@dataclass(frozen=True)
class PeopleGroup:
    """People with the same rights."""

    people: Mapping[str, str]
    """Names by id."""
    roles: Sequence[str]
    """The roles that they share."""
    rights: Sequence[Rights]
    orders: Sequence[str]
    """What they may do about Keyturn itself, in words."""


@dataclass(frozen=True)
class AreaHosts:
    """An area with its owners and hosts."""

    name: str
    title: str
    owners: Sequence[str]
    hosts: Sequence[str]

    @property
    def description(self) -> str:
        """The number and names of the hosts."""
        names = join_names(shorten_names(self.hosts))
        return f"{format_count(len(self.hosts), 'host')}: {names}" if names else "no hosts yet"


@dataclass(frozen=True)
class PolicyMatrix:
    """Who may do what, who owns what, and when changes wait."""

    version: str
    groups: Sequence[PeopleGroup]
    rows: Sequence[Row]
    """What everyone may do, with one cell for each group."""
    areas: Sequence[AreaHosts]
    freezes: Sequence[FreezePeriod]
    conditional_rules: Sequence[ConditionalRule]
    checks: int
    changes: int
    irreversible_changes: Sequence[str]
    """The names of the changes without an undo."""
    signers: Sequence[SigningPerson]
    """The people who have signing keys, or need one."""
    lacks_duties: bool
    """Whether there are on-call calendars, and no one looked up who is on duty."""

    @property
    def to_data(self) -> dict[str, Any]:
        """The matrix for JSON; each group has its own rows."""
        data = asdict(self)
        del data["rows"]
        for known, freeze in zip(data["freezes"], self.freezes, strict=True):
            known |= {
                "begins_at": freeze.begins_at.isoformat(),
                "ends_at": freeze.ends_at.isoformat(),
                "sentence": freeze.sentence,
            }
        return data

    @property
    def description(self) -> str:
        """What applies to every request."""
        names = join_names(f"“{words}”" for words in self.irreversible_changes)
        sentences = [
            f"{self.checks} read-only checks, {self.changes} changes.",
            "No one can approve a request that they made, edited or scheduled.",
            "One denial by an approver ends a request.",
            f"A request covers at most {DEFAULT_MAX_HOSTS} hosts, unless stated otherwise below.",
            "Anything that no rule permits is refused.",
            "The answers are for a request on the web, for one host, on a Wednesday at noon, "
            "outside freezes.",
            f"Always irreversible: {names}. The plan of any other change shows whether it is."
            if names
            else "",
            f"{format_sentence(NO_DUTIES)} The service may permit people on duty more."
            if self.lacks_duties
            else "",
        ]
        return " ".join(one for one in sentences if one)


def build_current_matrix(policy: Policy, microseconds: int, *, person: str = "") -> PolicyMatrix:
    """Return what everyone may do this week, or one person. microseconds: since 1970."""
    now = to_datetime(microseconds)
    monday = now.date() - timedelta(days=now.weekday())
    return replace(_build_week(policy, monday, person), freezes=policy.list_freeze_periods(now))


@lru_cache(maxsize=64)
def _build_week(policy: Policy, monday: date, person: str) -> PolicyMatrix:
    week = datetime.combine(monday, time(), UTC)
    return build_matrix(policy, list_runbook_info(), now=week, person=person)


def build_matrix(
    policy: Policy, runbooks: Sequence[RunbookInfo], *, now: datetime, person: str = ""
) -> PolicyMatrix:
    """Return what everyone, or one person, may do.

    now: freezes are listed from this time on, and rules that depend on the date are evaluated for
    its week.
    """
    probe = PolicyProbe(policy, runbooks, now)
    groups: dict[tuple[PlaceRights, Sequence[str]], list[str]] = defaultdict(list)
    for people in [(person,)] if person else probe.people.values():
        # People whom the rules name for different reasons may have the same rights.
        groups[probe.list_rights(people), _list_orders(policy, people[0])] += people
    columns = [dict(rights) for rights, _ in groups]
    built = [
        _build_group(probe, people, dict(rights), orders)
        for (rights, orders), people in groups.items()
    ]
    return PolicyMatrix(
        version=policy.version,
        groups=built,
        rows=probe.build_rows(columns),
        areas=[
            AreaHosts(
                name=area.name,
                title=area.title,
                owners=[policy.get_person_name(owner) for owner in area.owners],
                hosts=sorted(host.name for host in policy.inventory if host.area == area.name),
            )
            for area in policy.organisation.areas.values()
        ],
        freezes=policy.list_freeze_periods(now),
        conditional_rules=policy.rules.conditional_rules,
        checks=sum(one.kind == "check" for one in runbooks),
        changes=sum(one.kind == "change" for one in runbooks),
        irreversible_changes=[one.name for one in runbooks if one.effect == "irreversible"],
        signers=_list_signers(policy, built),
        lacks_duties=policy.lacks_duties,
    )


def _list_signers(policy: Policy, groups: Sequence[PeopleGroup]) -> Sequence[SigningPerson]:
    """Return the people of these groups who have signing keys, or need one."""
    signs = {person: _list_signed(group.rights) for group in groups for person in group.people}
    people = [policy.organisation.people[person] for person in sorted(signs)]
    return [
        build_signing_person(one, signs[one.id])
        for one in people
        if one.signing_keys or signs[one.id]
    ]


def _list_signed(rights: Sequence[Rights]) -> Sequence[str]:
    """Return what they sign: `requests and approvals of every reversible change (lb1)`."""
    signed: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in rights:
        how = {"requests": one.signs_requests, "approvals": one.signs_approvals}
        if acts := join_names(act for act, applies in how.items() if applies):
            signed[acts, one.where].append(one.what)
    return [f"{acts} of {join_names(what)} ({where})" for (acts, where), what in signed.items()]


def _build_group(
    probe: "PolicyProbe",
    people: Sequence[str],
    rights: Mapping[Place, Rights],
    orders: Sequence[str],
) -> PeopleGroup:
    known = sorted(
        (probe.policy.organisation.people[person] for person in people), key=lambda one: one.name
    )
    return PeopleGroup(
        people={one.id: one.name for one in known},
        roles=[role for role in known[0].roles if all(role in one.roles for one in known)],
        rights=[
            replace(row.cells[0], what=row.what, where=row.where)
            for row in probe.build_rows([rights])
        ],
        orders=orders,
    )


def _list_orders(policy: Policy, person: str) -> Sequence[str]:
    rulings = {words: policy.get_order_ruling(person, order) for order, words in _ORDERS.items()}
    factor = " (with a second factor, on the web pages)"
    return tuple(
        words + factor * ruling.requires_second_factor
        for words, ruling in rulings.items()
        if ruling.allowed
    )


class PolicyProbe:
    """Evaluates one policy in the week of *now*.

    Attributes:
        hosts, people, requests: One representative of each group that the rules treat alike, with
            all members of the group.
    """

    def __init__(self, policy: Policy, runbooks: Sequence[RunbookInfo], now: datetime) -> None:
        used = {host.area for host in policy.inventory}
        unused = [area for area in policy.organisation.areas if area not in used]
        # A host that represents the future hosts of an area.
        supposed = [Host.model_construct(name=f"any host of {one}", area=one) for one in unused]
        self.policy = policy.with_hosts_and_freezes(supposed, FreezeList())
        self.hosts = _group_alike(self.policy.host_likenesses)
        self.people = _group_alike(self.policy.person_likenesses)
        self.requests = _group_requests(runbooks, policy.rules.distinct_runbooks)
        self._wednesday = now.date() + timedelta(days=_WEDNESDAY - now.weekday())
        self._places = [(host, request) for host in self.hosts for request in self.requests]
        self.rulings = {like: self._list_rulings(like) for like in self.people}

    def build_request(self, person: str, place: Place) -> PolicyRequest:
        host, request = place
        zone = ZoneInfo(self.policy.inventory[host].zone)
        noon = datetime.combine(self._wednesday, time(_NOON), zone)
        return PolicyRequest(
            runbook=request.runbook,
            kind=request.kind,
            host=host,
            source="web",
            requested_by=person,
            reversible=request.reversible,
            now=round(noon.timestamp()) * SECOND,
            is_first_success=False,
        )

    def _list_rulings(self, person: str) -> dict[Place, Ruling]:
        return {
            place: self.policy.get_request_ruling(self.build_request(person, place))
            for place in self._places
        }

    def list_rights(self, people: Sequence[str]) -> PlaceRights:
        """Return the rights of people whom the rules treat alike."""
        return tuple((place, self._build_rights(people, place)) for place in self._places)

    def _build_rights(self, people: Sequence[str], place: Place) -> Rights:
        like = next(one for one, members in self.people.items() if people[0] in members)
        ruling = self.rulings[like][place]
        request = self.build_request(like, place)
        view = self.policy.get_view_ruling(like, request)
        approvable = self._list_approvable(people, place)
        approval = approvable[0][1] if approvable else Ruling(allowed=False)
        emergency = Ruling(allowed=False)
        if place[1].kind == "change":
            emergency = self.policy.get_break_glass_ruling(request)
        applied = [ruling, *(one for one in (approval, view, emergency) if one.allowed)]
        rights = Rights(
            answer=get_answer(ruling),
            can_approve=approval.allowed,
            can_view=view.allowed,
            can_break_glass=emergency.allowed,
            signs_requests=ruling.allowed and ruling.requires_signed_request,
            signs_approvals=any(one.requires_signature for one, _ in approvable),
            rules=tuple(
                dict.fromkeys(
                    pair
                    for one in applied
                    for pair in zip(one.rules, one.policy_notes, strict=False)
                )
            ),
            notes=self._list_notes(ruling) if ruling.allowed else (),
        )
        if rights.answer != "approval":
            return rights
        approvers = self._list_approvers(place, ruling)
        # People of one group can approve each other's requests.
        shown = approvers - set(people) if len(people) == 1 else approvers
        lacks = [
            not all(self.policy.is_met(ruling.requirements, able - {one}) for one in people)
            for able in (approvers, self._keep_signers(approvers, ruling))
        ]
        return replace(
            rights,
            required_approvals=ruling.required_approvals,
            approvals_from=self.policy.describe_approver_groups(ruling.requirements),
            approvers=tuple(sorted(self.policy.get_person_name(one) for one in shown)),
            has_enough_approvers=not any(lacks),
            lacks_keys=lacks == [False, True],
        )

    def _keep_signers(self, people: frozenset[str], ruling: Ruling) -> frozenset[str]:
        """Return those who have a key, where approvals are signatures."""
        if not ruling.requires_signature:
            return people
        known = self.policy.organisation.people
        return frozenset(one for one in people if known[one].signing_keys)

    def _list_approvable(
        self, people: Sequence[str], place: Place
    ) -> Sequence[tuple[Ruling, Ruling]]:
        """Return what these people can approve of others: of each, both rulings."""
        request = self.build_request("", place)
        rulings = [
            (requested, self.policy.get_approval_ruling(people[0], request, requested))
            for requester, rulings in self.rulings.items()
            if self.people[requester] != tuple(people)
            and get_answer(requested := rulings[place]) == "approval"
        ]
        return [pair for pair in rulings if pair[1].allowed]

    def _list_approvers(self, place: Place, ruling: Ruling) -> frozenset[str]:
        request = self.build_request("", place)
        return frozenset(
            person
            for like, members in self.people.items()
            if self.policy.get_approval_ruling(like, request, ruling).allowed
            for person in members
        )

    def _list_notes(self, ruling: Ruling) -> tuple[str, ...]:
        terms = ruling.requirements
        whose = "requests and approvals" if terms.demands else "requests"
        escalated = ApprovalRequirements(demands=(ApprovalDemand(1, (terms.escalate_to,)),))
        delay = f" after {format_wait(2 * terms.remind_after)}" if terms.remind_after else ""
        notes = {
            f"{whose} need a reason": terms.requires_reason,
            "requests name an approved change ticket": terms.requires_ticket,
            "approvals need a second factor, on the web pages": terms.requires_second_factor,
            "approvals are signatures over the plan": (
                terms.requires_signature and not terms.requires_signed_request
            ),
            "requester and approvers sign the plan": terms.requires_signed_request,
            "nothing is sent without the cosignatures of "
            f"{format_count(terms.required_witnesses, 'witness', plural='witnesses')}": (
                terms.required_witnesses
            ),
            "another person reviews each run within a day": ruling.requires_review,
            f"approvers are reminded after {format_wait(terms.remind_after)}": terms.remind_after,
            "without a decision, "
            f"{self.policy.describe_approver_groups(escalated)} may also approve{delay}": (
                terms.escalate_to
            ),
            f"at most {format_count(ruling.max_hosts, 'host')} per request": (
                ruling.max_hosts != DEFAULT_MAX_HOSTS
            ),
        }
        return tuple(note for note, applies in notes.items() if applies)

    def build_rows(self, columns: Sequence[Mapping[Place, Rights]]) -> list[Row]:
        """Return one row for requests and hosts that have the same rights in every column."""
        blocks: dict[object, list[RequestKind]] = defaultdict(list)
        for request in self.requests:
            answers = tuple(one[host, request] for host in self.hosts for one in columns)
            blocks[request.noun, answers].append(request)
        rows: list[Row] = []
        for requests in blocks.values():
            hosts: dict[tuple[Rights, ...], set[str]] = defaultdict(set)
            for host, alike in self.hosts.items():
                hosts[tuple(one[host, requests[0]] for one in columns)].update(alike)
            members = [one for request in requests for one in self.requests[request]]
            runbooks = {one.runbook for one in members}
            what, noun = self._name_requests(members), members[0].noun
            rows += [
                Row(what, _name_hosts(names, self.policy), noun, runbooks, names, cells)
                for cells, names in hosts.items()
            ]
        return sorted(rows, key=lambda row: _NOUNS.index(row.noun))

    def _name_requests(self, members: Sequence[RequestKind]) -> str:
        """Describe requests of one noun: `every check`, `every other change`, or their names."""
        noun = members[0].noun
        every = sum(len(same) for one, same in self.requests.items() if one.noun == noun)
        if 2 * len(members) > every:
            return f"every {'other ' * (len(members) < every)}{noun}"
        names = join_names(shorten_names(sorted(f"“{one.runbook}”" for one in members)))
        return names if noun == "check" else f"{names} ({noun})"


def get_answer(ruling: Ruling) -> str:
    """Return `allowed`, `approval` or `refused`."""
    if not ruling.allowed:
        return "refused"
    return "approval" if ruling.required_approvals else "allowed"


def shorten_names(names: Sequence[str]) -> Sequence[str]:
    """Return the first names and the number of the others."""
    if len(names) <= _MAX_NAMES:
        return names
    return [*names[:_MAX_NAMES], f"{len(names) - _MAX_NAMES} more"]


def _group_alike(likenesses: Mapping[str, Hashable]) -> dict[str, tuple[str, ...]]:
    """Return the first member of each group, with all members."""
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for name, likeness in likenesses.items():
        groups[likeness].append(name)
    return {names[0]: tuple(names) for names in groups.values()}


def _group_requests(
    runbooks: Sequence[RunbookInfo], distinct: Set[str] | None
) -> dict[RequestKind, tuple[RequestKind, ...]]:
    groups: dict[tuple[str, str], list[RequestKind]] = defaultdict(list)
    for runbook in runbooks:
        request = RequestKind(runbook.name, runbook.kind)
        kinds = [request] if runbook.kind == "check" or runbook.undo else []
        # A runbook with undo can still plan irreversible steps.
        kinds += [replace(request, reversible=False)] if runbook.kind == "change" else []
        for one in kinds:
            is_distinct = distinct is None or runbook.name in distinct
            groups[one.noun, runbook.name if is_distinct else ""].append(one)
    return {requests[0]: tuple(requests) for requests in groups.values()}


def _name_hosts(hosts: Set[str], policy: Policy) -> str:
    """Describe hosts: `everywhere`, `the edge and storage`, `lb1`."""
    areas: dict[str, set[str]] = defaultdict(set)
    for host in policy.inventory:
        areas[host.area].add(host.name)
    complete = [area for area, names in areas.items() if names <= hosts]
    if len(complete) == len(areas):
        return "everywhere"
    rest = [
        host.name for host in policy.inventory if host.name in hosts and host.area not in complete
    ]
    titles = [policy.organisation.areas[area].title for area in complete]
    return join_names([*titles, *shorten_names(rest)])
