"""The policy: people, areas, hosts, rules and freezes, and its rulings on requests. Pure."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar
from zoneinfo import ZoneInfo

import cedarpy

from bot.model.agents import AgentOrigin, format_requester, get_agent_name, is_agent
from bot.model.approvals import ApprovalDemand, ApprovalRequirements
from bot.model.run import Run
from bot.model.times import SECOND, to_datetime
from bot.model.view_rights import ViewRights, name_former_host
from bot.model.waiting import Waiting, WaitingFor, describe_freeze
from bot.policy.cedar import RUNBOOK_KINDS, Rules, Ruling, combine_rulings
from bot.policy.fault_tree import Event
from bot.policy.freezes import WEEKDAYS, Freeze, FreezeList, FreezePeriod, OrderedFreeze
from bot.policy.oncall import NO_DUTIES, ROLE_PREFIX, Duty, DutyCalendar
from bot.policy.people import Area, Organisation, Person
from bot.policy.problem import PolicyProblem
from bot.policy.provisioning import ProvisionedPeople, join_people
from bot.policy.tickets import TicketSystem
from bot.policy.tree_analysis import TreeAnalysis
from connectors.inventory import Host, Inventory
from connectors.signed_files import name_signers
from runbooks import Leg

# How many rulings are cached.
_MAX_CACHED_RULINGS = 4096
# The margin of a change that takes no leg of a service down.
NO_LIMIT = 99

ReadMargin = Callable[[Any, "Policy", Run], int]
"""Reads in a transaction how many legs of a service a run leaves; NO_LIMIT where it takes none."""

Order = Literal["stop", "resume", "ban"]
Given = TypeVar("Given")


@dataclass(frozen=True)
class PolicyRequest:
    """The facts about a request that rules can depend on."""

    runbook: str
    kind: str
    host: str
    source: str
    requested_by: str
    reversible: bool = True
    hosts: Sequence[str] = ()
    """All hosts of a request for several; those of a change are in one area."""
    now: int = field(kw_only=True)
    """Microseconds since 1970."""
    is_first_success: bool = True
    """Whether this runbook has never succeeded for the requester; assumed where it is unknown."""
    is_escalated: bool = False
    """Whether the @escalate groups may approve as well."""
    editors: Sequence[str] = ()
    """Other people who cannot approve it: editors of its values, and the owner of its schedule."""
    is_delegated: bool = False
    """Whether a delegate decides on behalf of the person."""
    has_grant: bool = False
    """Whether a standing grant replaces the approval."""
    margin: int = NO_LIMIT
    """How many legs of a service the change leaves; NO_LIMIT where it takes none down."""
    overrides_guard: bool = False
    """Whether it takes a leg down that the redundancy guard would refuse."""
    agent: AgentOrigin | None = None
    """Whose request it is, where an agent made it."""
    is_review_overdue: bool = False
    """Whether another person has not reviewed an earlier run of the requester in time."""
    parts: Sequence[tuple[str, Sequence[str]]] = ()
    """Of a sequence, each runbook with its hosts: the rules decide about all of them."""
    hosts_in_all: int = 0
    """Of a part of a sequence, the number of hosts of the whole."""

    @property
    def host_count(self) -> int:
        return self.hosts_in_all or len(self.hosts) or 1

    def split_parts(self) -> Sequence["PolicyRequest"]:
        """Return a request for each runbook of a sequence; any other request as it is."""
        count = len(self.hosts)
        return [
            replace(
                self,
                runbook=runbook,
                host=hosts[0],
                hosts=tuple(hosts),
                parts=(),
                hosts_in_all=count,
            )
            for runbook, hosts in self.parts
        ] or [self]

    def iterate_hosts(self) -> Iterator[tuple["PolicyRequest", str]]:
        """Yield each part of the request with each of its hosts."""
        for part in self.split_parts():
            yield from ((part, host) for host in part.hosts or [part.host])

    def is_made_by(self, person: str) -> bool:
        return person == self.requested_by or person in self.editors or self._is_for(person)

    def _is_for(self, person: str) -> bool:
        """Return whether an agent made it for this person, or belongs to them."""
        return self.agent is not None and person in {self.agent.behalf, self.agent.owner}


def _name_signers(organisation: Organisation, inventory: Inventory) -> Inventory:
    """Return the inventory whose enrolled hosts know who may sign according to the policy."""
    people = organisation.people.values()
    keys = [(one.id, key.line) for one in people for key in one.signing_keys]
    hosts = {
        name: name_signers(
            host,
            keys,
            organisation.areas[host.area].owners,
            verify_user=organisation.verify_user,
        )
        if host.signed
        else host
        for name, host in inventory.hosts.items()
    }
    return inventory.model_copy(update={"hosts": hosts})


def _rule_unsigned(request: PolicyRequest, ruling: Ruling, enrolled: Sequence[Host]) -> Ruling:
    """Return the ruling of a request that no one signs, on hosts that check signatures.

    What such a host runs without signatures is known by its words: the plan decides.
    """
    who = "an agent" if request.agent else "a schedule"
    for host in enrolled:
        if not host.unsigned:
            note = f"{host.name} checks who signed each change, and {who} signs nothing"
            return Ruling(allowed=False, policy_notes=(note,))
    notes = [
        f"Without signatures, {host.name} runs only: {', '.join(host.unsigned)}. A plan with "
        "another command is refused."
        for host in enrolled
    ]
    return replace(ruling, policy_notes=(*ruling.policy_notes, *notes))


class Policy:
    """One version of the policy, immutable once loaded.

    Attributes:
        version: 12 hex digits.
        files: The digest of each file that it was read from, 12 hex digits.
        person_names: The names of all people by id, banned people included.
    """

    def __init__(  # noqa: PLR0913 - the files of a policy directory
        self,
        organisation: Organisation,
        inventory: Inventory,
        rules: Rules,
        freezes: FreezeList,
        *,
        version: str,
        files: Mapping[str, str] | None = None,
        person_names: Mapping[str, str] | None = None,
        trees: Mapping[str, TreeAnalysis] | None = None,
        tree_problems: Sequence[PolicyProblem] = (),
        read_margin: ReadMargin | None = None,
        tickets: TicketSystem | None = None,
        calendars: Mapping[str, DutyCalendar] | None = None,
        duties: Mapping[str, Duty] | None = None,
        warnings: Sequence[PolicyProblem] = (),
        named_hosts: cedarpy.Entities | None = None,
        written: Organisation | None = None,
        provisioned: ProvisionedPeople | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self.organisation, self.version = organisation, version
        self.written = written or organisation
        """People and areas as the files have them."""
        self.provisioned = provisioned
        """What an identity provider says of people; None if that was not looked up."""
        self._absent = absent
        self.inventory = _name_signers(organisation, inventory)
        self.calendars = calendars or {}
        """The calendars of people on duty, by name."""
        self.duties = duties or {}
        """Who is on duty, by the name of the calendar; empty if that was not looked up."""
        self.files = files or {}
        self.person_names = person_names or {
            one.id: one.name for one in organisation.people.values()
        }
        self.freezes = freezes
        self.warnings = warnings
        """Names of people who left, and of roles that no one has any more."""
        self.trees = trees or {}
        """The fault trees of services, by name."""
        self.tree_problems = tree_problems
        """Why files of fault trees are not valid. No change that takes something down starts then:
        what they protect is not known."""
        self.read_margin = read_margin or _assume_least_margin
        """Reads the margin that a run leaves; without a reader, no leg is known to be left."""
        self.tickets = tickets
        """The system that is asked about change tickets; None without tickets.yaml."""
        self._rules = rules
        self._named_hosts = named_hosts or self._build_named_hosts()
        self._view_rights: dict[str, ViewRights] = {}
        # A policy never changes, so a ruling depends only on the request.
        self._get_hosts_ruling = lru_cache(64)(self._compute_hosts_ruling)
        self._rulings: dict[tuple[Hashable, ...], Ruling] = {}
        # The last copy of each kind, with what it was made for: the gate asks for the same again.
        self._copies: dict[str, tuple[object, Policy]] = {}

    def find_person(self, person_id: str) -> Person | None:
        return self.organisation.people.get(person_id)

    def get_person_name(self, person_id: str) -> str:
        """Return the name of a person or agent, or the id of a person who was removed."""
        return self.person_names.get(person_id) or get_agent_name(person_id)

    def describe_requester(self, requested_by: str, agent: AgentOrigin | None) -> str:
        """Return who requested something, as format_requester()."""
        return format_requester(requested_by, agent, self.get_person_name)

    def get_area(self, host: str) -> Area:
        return self.organisation.areas[self.inventory[host].area]

    def join_area_titles(self, areas: Sequence[str]) -> str:
        """Return the titles of areas: `the core, storage and the edge`; a removed area's name."""
        known = self.organisation.areas
        titles = [known[name].title if name in known else name for name in areas]
        return " and ".join([*filter(None, [", ".join(titles[:-1])]), *titles[-1:]])

    def list_people_allowed(self, order: Order, *, except_person: str) -> list[str]:
        """Return the names of all people who may do this, except for one person."""
        people = self.organisation.people
        allowed = self._select_people(
            people, (), lambda person: self.get_order_ruling(person, order).allowed
        )
        return [people[person].name for person in allowed if person != except_person]

    @property
    def rules(self) -> Rules:
        return self._rules

    @property
    def most_witnesses(self) -> int:
        """The largest number of witnesses that a rule requires."""
        return self._rules.most_witnesses

    @property
    def can_require_ticket(self) -> bool:
        """Whether a rule requires that requests name a change ticket."""
        return self._rules.can_require_ticket

    @property
    def can_require_second_factor(self) -> bool:
        """Whether any rule requires a second factor."""
        return self._rules.can_require_second_factor

    @property
    def mentions(self) -> frozenset[str]:
        """What the rules depend on: attributes by name, and entities such as `Host::lb1`."""
        return self._rules.mentioned

    @cached_property
    def person_likenesses(self) -> Mapping[str, Hashable]:
        """For each person a key that is the same for people with the same rulings.

        Their rulings on requests of others are the same. A person whom a rule names has a key of
        their own.
        """
        owned = self._owned_areas
        return {
            person: (key, tuple(owned.get(person, ())))
            for person, key in self._likenesses_elsewhere.items()
        }

    @cached_property
    def _likenesses_elsewhere(self) -> Mapping[str, Hashable]:
        """As person_likenesses, for rulings about areas that the person does not own."""
        is_name_used, owned_areas = "name" in self.mentions, self._owned_areas
        named = {
            one.removeprefix("Person::") for one in self.mentions if one.startswith("Person::")
        }
        # Who owns these matters everywhere: rules name them, or read hosts in them.
        read = {one for one in self.organisation.areas if f"Owners::{one}" in self.mentions}
        read |= {self.inventory[name].area for name in self._inspected_hosts}
        numbers: dict[Hashable, int] = {}
        return {
            name: numbers.setdefault(
                (
                    tuple(sorted(one.roles)),
                    tuple(area for area in owned_areas.get(name, ()) if area in read),
                    one.name if is_name_used else "",
                    name if name in named else "",
                ),
                len(numbers),
            )
            for name, one in self.organisation.people.items()
        }

    def _group_hosts(self, mentions: frozenset[str]) -> Mapping[str, Hashable]:
        """Return for each host a key that is the same for hosts with the same rulings.

        A host that a rule names has a key of its own. mentions: what the rules depend on.
        """
        return {
            host.name: (
                host.area,
                host.tags if "tags" in mentions else frozenset[str](),
                host.name if f"Host::{host.name}" in mentions else "",
            )
            for host in self.inventory
        }

    def _select_people(
        self, people: Iterable[str], areas: Collection[str], ask: Callable[[str], bool]
    ) -> list[str]:
        """Return the people for whom *ask* is true; it is asked once for all who are alike.

        areas: all that the answer is about.
        """
        owned: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for area in areas:
            for owner in self.organisation.areas[area].owners:
                owned[owner] += (area,)
        answers: dict[Hashable, bool] = {}
        selected: list[str] = []
        for person in people:
            likeness = (self._likenesses_elsewhere[person], owned.get(person))
            if likeness not in answers:
                answers[likeness] = ask(person)
            if answers[likeness]:
                selected.append(person)
        return selected

    def has_protected(self, legs: Collection[Leg]) -> bool:
        """Return whether a fault tree may protect one of these legs."""
        trees = self.trees.values()
        return bool(legs) and (
            bool(self.tree_problems) or any(one.list_events_of(legs) for one in trees)
        )

    @cached_property
    def events_by_check(self) -> Mapping[str, Sequence[tuple[str, Event]]]:
        """The events of fault trees, each with its tree's name, by the check that reads them."""
        events: dict[str, list[tuple[str, Event]]] = {}
        for name, analysis in self.trees.items():
            for event in analysis.events:
                if event.check:
                    events.setdefault(event.check, []).append((name, event))
        return events

    @cached_property
    def events_by_contact(self) -> Mapping[str, Sequence[tuple[str, Event]]]:
        """The events without a check, each with its tree's name, by the host that is contacted."""
        events: dict[str, list[tuple[str, Event]]] = {}
        for name, analysis in self.trees.items():
            for event in analysis.events:
                if event.leg is not None and not event.check:
                    events.setdefault(event.leg.host, []).append((name, event))
        return events

    @cached_property
    def host_likenesses(self) -> Mapping[str, Hashable]:
        """For each host a key that is the same for hosts with the same rulings and time zone.

        An enrolled host has other rulings, whatever the rules say.
        """
        keys = self._group_hosts(self.mentions)
        freezes = self._read_freezes
        return {
            one.name: (
                keys[one.name],
                one.zone,
                one.signed,
                one.unsigned,
                tuple(freeze.covers(one) for freeze in freezes),
            )
            for one in self.inventory
        }

    def get_runbook_likeness(self, words: str) -> Hashable:
        """Return a key that is the same for runbooks of one kind with the same rulings."""
        distinct = self._rules.distinct_runbooks
        named = words if distinct is None or words in distinct else ""
        return named, tuple(freeze.exempts(words) for freeze in self._read_freezes)

    @property
    def _read_freezes(self) -> Sequence[Freeze]:
        """The freezes, if rules read whether one is active."""
        return self.freezes.freezes if "frozen" in self.mentions else ()

    @cached_property
    def _viewed_host_groups(self) -> Sequence[Sequence[str]]:
        """The hosts in groups for which the rules on viewing decide equally."""
        groups: dict[Hashable, list[str]] = defaultdict(list)
        for host, key in self._group_hosts(self._rules.view_rules.mentioned).items():
            groups[key].append(host)
        return [*groups.values()]

    def with_hosts_and_freezes(self, hosts: Sequence[Host], freezes: FreezeList) -> "Policy":
        """Return this policy with additional hosts and with other freezes."""
        known = {**self.inventory.hosts, **{host.name: host for host in hosts}}
        inventory = self.inventory.model_copy(update={"hosts": known})
        return self._copy(inventory=inventory, freezes=freezes)

    def without_people(self, banned_people: Collection[str]) -> "Policy":
        """Return this policy without banned people."""
        return self._keep_copy("people", frozenset(banned_people), self._remove_people)

    def _remove_people(self, banned: frozenset[str]) -> "Policy":
        organisation = self.organisation
        people = {name: one for name, one in organisation.people.items() if name not in banned}
        absent = self._absent.union(banned)
        if len(people) == len(organisation.people) and absent == self._absent:
            return self
        areas = {
            name: area
            if banned.isdisjoint(area.owners)
            else area.model_copy(
                update={"owners": tuple(one for one in area.owners if one not in banned)}
            )
            for name, area in organisation.areas.items()
        }
        remaining = organisation.model_copy(update={"people": people, "areas": areas})
        return self._copy(organisation=remaining, absent=absent)

    def with_provisioned_people(self, provisioned: ProvisionedPeople) -> "Policy":
        """Return this policy with what an identity provider says of people now.

        Banned people stay absent.
        """
        if self.provisioned == provisioned:
            return self
        return self._keep_copy("provisioned", provisioned, self._join_people)

    def _join_people(self, provisioned: ProvisionedPeople) -> "Policy":
        joined = join_people(self.written, provisioned).people
        people = {name: one for name, one in joined.items() if name not in self._absent}
        accounts = {one.person: one.name for one in provisioned.users}
        names = {
            **provisioned.former_names,
            **accounts,
            **{one.id: one.name for one in (*self.written.people.values(), *joined.values())},
        }
        if self.duties:
            people = self._give_duty_roles(people, self.duties)
        organisation = self.written.with_people(people)
        return self._copy(organisation=organisation, provisioned=provisioned, person_names=names)

    def with_margins(self, read_margin: ReadMargin) -> "Policy":
        """Return this policy with what reads the margin that a run leaves."""
        return self._keep_copy(
            "margins", read_margin, lambda reader: self._copy(read_margin=reader)
        )

    def with_duties(self, duties: Mapping[str, Duty]) -> "Policy":
        """Return this policy with the roles of the people who are on duty, by calendar."""
        return self._keep_copy("duties", duties, self._add_duties)

    def _add_duties(self, duties: Mapping[str, Duty]) -> "Policy":
        people = self._give_duty_roles(self.organisation.people, duties)
        organisation = self.organisation.model_copy(update={"people": people})
        return self._copy(organisation=organisation, duties=duties)

    def _give_duty_roles(
        self, people: Mapping[str, Person], duties: Mapping[str, Duty]
    ) -> dict[str, Person]:
        return {
            name: one
            if (roles := self._list_roles(one, duties)) == tuple(one.roles)
            else one.model_copy(update={"roles": roles})
            for name, one in people.items()
        }

    def with_ordered_freezes(self, ordered: Sequence[OrderedFreeze]) -> "Policy":
        """Return this policy with these freezes besides its own, and no other ordered ones."""
        own = [one for one in self.freezes.freezes if not isinstance(one, OrderedFreeze)]
        wanted = [*own, *ordered]
        if wanted == [*self.freezes.freezes]:
            return self
        return self._keep_copy(
            "freezes", wanted, lambda freezes: self._copy(freezes=FreezeList(freezes=freezes))
        )

    def _keep_copy(self, kind: str, given: Given, build: Callable[[Given], "Policy"]) -> "Policy":
        """Return the copy of this kind, which is built again only if *given* is another."""
        known = self._copies.get(kind)
        if known is None or known[0] != given:
            known = self._copies[kind] = (given, build(given))
        return known[1]

    def _list_roles(self, person: Person, duties: Mapping[str, Duty]) -> Sequence[str]:
        """Return the roles of people.yaml, and those of calendars by which a person is on duty."""
        lasting = [role for role in person.roles if not role.startswith(ROLE_PREFIX)]
        on_duty = [name for name, duty in duties.items() if person.id in duty.people]
        return (*lasting, *(f"{ROLE_PREFIX}{name}" for name in on_duty))

    def list_on_duty(self, area: str) -> frozenset[str]:
        """Return the people who are on duty for an area."""
        return frozenset(person for duty in self._list_duties(area) for person in duty.people)

    def count_on_duty(self, area: str) -> int:
        """Count who is on duty for an area; 0 if that is not known.

        It is not known without a current reading of each calendar of the area, or while an event
        that is not understood may be current. A shift that names no one of people.yaml counts too:
        its person is only unknown here.
        """
        duties = self._list_duties(area)
        if not all(duty.is_complete for duty in duties):
            return 0
        unmatched = {(n, title) for n, duty in enumerate(duties) for title in duty.unmatched}
        people = {person for duty in duties for person in duty.people}
        return len(people) + len(unmatched)

    @property
    def lacks_duties(self) -> bool:
        """Whether it has on-call calendars, and no one looked up who is on duty."""
        return bool(self.calendars) and not self.duties

    def describe_unknown_duty(self, request: PolicyRequest, ruling: Ruling) -> str:
        """Return why it is not known who is on duty, if knowing it could change a ruling.

        "" if the calendars of the area are read and understood, or the rules decide the same.
        """
        host = self.inventory.hosts.get(request.host)
        unknown = [
            name
            for name, calendar in self.calendars.items()
            if host is not None
            and calendar.covers_area(host.area)
            and not self.duties.get(name, Duty()).is_complete
        ]
        if not unknown:
            return ""
        on_duty = Duty((request.requested_by,), is_known=True)
        known = self.with_duties({**self.duties, **dict.fromkeys(unknown, on_duty)})
        groups = {f"role:{ROLE_PREFIX}{name}" for name in unknown}
        if groups.isdisjoint(ruling.approver_groups) and (
            known.get_request_ruling(request) == ruling
        ):
            return ""
        if self.lacks_duties:
            return f"{NO_DUTIES}: the service may decide otherwise"
        return "; ".join(self._describe_unknown_calendars(unknown))

    def _describe_unknown_calendars(self, names: Sequence[str]) -> Iterator[str]:
        duties = {name: self.duties.get(name, Duty()) for name in names}
        if old := [name for name, duty in duties.items() if not duty.is_known]:
            yield (
                "no one counts as on duty, because on-call calendars are not current: "
                f"{', '.join(old)}"
            )
        for name, duty in duties.items():
            if duty.is_known:
                yield (
                    "it is not known who is on duty, because events of the on-call calendar "
                    f"{name} are not understood: {', '.join(duty.unclear)}"
                )

    def _list_duties(self, area: str) -> Sequence[Duty]:
        return [
            self.duties.get(name, Duty())
            for name, calendar in self.calendars.items()
            if calendar.covers_area(area)
        ]

    def _copy(self, **changes: Any) -> "Policy":
        parts: dict[str, Any] = {
            "organisation": self.organisation,
            "inventory": self.inventory,
            "rules": self._rules,
            "freezes": self.freezes,
            "version": self.version,
            "files": self.files,
            "person_names": self.person_names,
            "trees": self.trees,
            "tree_problems": self.tree_problems,
            "read_margin": self.read_margin,
            "tickets": self.tickets,
            "calendars": self.calendars,
            "duties": self.duties,
            "warnings": self.warnings,
            "written": self.written,
            "provisioned": self.provisioned,
            "absent": self._absent,
            # They depend on the inventory alone.
            "named_hosts": None if "inventory" in changes else self._named_hosts,
        }
        return Policy(**{**parts, **changes})

    def get_order_ruling(self, person: str, order: Order, *, is_own: bool = False) -> Ruling:
        """Return whether a person may stop everything, ban a person, or resume or unban.

        is_own: whether the same person stopped or banned.
        """
        if person not in self.organisation.people:
            return Ruling(allowed=False, policy_notes=(f"{person} is not in the policy",))
        return self._rules.compute_order_ruling(
            self._build_entities(person), person=person, order=order, is_own=is_own
        )

    def list_freeze_periods(self, now: datetime) -> list[FreezePeriod]:
        """Return the active and upcoming freezes, by their beginning."""
        titles = {name: area.title for name, area in self.organisation.areas.items()}
        return self.freezes.list_periods(now, titles)

    def describe_freeze(self, hosts: Sequence[str], *, runbook: str, now: int) -> str:
        """Return the freeze that holds changes of these hosts now, in words; "" without one."""
        freeze = self.find_freeze(hosts, runbook=runbook, now=now)
        return describe_freeze(freeze) if freeze else ""

    def find_freeze(self, hosts: Sequence[str], *, runbook: str, now: int) -> Waiting | None:
        """Return the freeze that holds changes of one of these hosts now, the last to end.

        Hosts that are not in the inventory are left out.
        """
        known = [self.inventory[host] for host in hosts if host in self.inventory.hosts]
        active = self.freezes.find_longest_active(known, runbook=runbook, now=now)
        if active is None:
            return None
        name, host = active.freeze.name, active.host
        place = host.name if active.freeze.hosts else self.get_area(host.name).title
        end = round(active.ends_at.timestamp()) * SECOND
        return Waiting(WaitingFor.FREEZE, name, place=place, time=end)

    def get_freeze_end(self, hosts: Sequence[str], *, runbook: str, now: int) -> int | None:
        """Return when the freeze that holds changes of these hosts now ends, in microseconds."""
        freeze = self.find_freeze(hosts, runbook=runbook, now=now)
        return freeze.time if freeze else None

    def get_view_rights(self, person: str) -> ViewRights:
        """Return the view rights of a person."""
        rights = self._view_rights.get(person)
        if rights is None:
            rights = self._view_rights[person] = self._build_view_rights(person)
        return rights

    def get_agent_view_rights(self, agent_id: str, behalf: str) -> ViewRights:
        """Return what an agent may view: its own runs, and what both it and its person may view.

        behalf: the person that it acts for; "" for none.
        """
        return self._build_view_rights(agent_id, (agent_id, behalf) if behalf else (agent_id,))

    def get_requester_view_rights(self, requester: str, agent: AgentOrigin | None) -> ViewRights:
        """Return what the requester of a run may view: a person, or an agent."""
        if agent is None:
            return self.get_view_rights(requester)
        return self.get_agent_view_rights(requester, agent.behalf)

    def _build_view_rights(self, person: str, principals: Sequence[str] = ()) -> ViewRights:
        """principals: those who all need the right; the person alone by default."""
        rules = self._rules.view_rules
        return ViewRights(
            person,
            host_groups=self._viewed_host_groups,
            areas=[*self.organisation.areas],
            runbooks=rules.runbooks if "runbook" in rules.mentioned else None,
            compares_runbooks_only=rules.compares_runbooks_only,
            kinds=RUNBOOK_KINDS if "kind" in rules.mentioned else ("",),
            decide=lambda host, runbook, kind: all(
                self._compute_view_ruling(principal, host, runbook, kind).allowed
                for principal in principals or (person,)
            ),
        )

    def get_view_ruling(self, person: str, request: PolicyRequest) -> Ruling:
        """Return whether the rules permit *person* to view such a run, on each of its hosts.

        Requesters and deciders can always view their own runs, whatever the rules permit.
        """
        return combine_rulings(
            [
                self._compute_view_ruling(person, host, part.runbook, part.kind)
                for part, host in request.iterate_hosts()
            ]
        )

    def can_view(self, person: str, request: PolicyRequest) -> bool:
        """Return whether *person* can view such a run, from cached view rights."""
        rights = self.get_view_rights(person)
        return all(
            rights.can_view(host=host, runbook=part.runbook, kind=part.kind)
            for part, host in request.iterate_hosts()
        )

    def _compute_view_ruling(self, person: str, host: str, runbook: str, kind: str) -> Ruling:
        if not self._is_known(person):
            return Ruling(allowed=False, policy_notes=(f"{person} is not in the policy",))
        known = self.inventory.hosts.get(host)
        return self._rules.compute_ruling(
            self._build_entities(person, host),
            person=person,
            action="view",
            host=host,
            area=known.area if known else "",
            context={"runbook": runbook, "kind": kind},
        )

    def get_request_ruling(self, request: PolicyRequest) -> Ruling:
        """Return whether the requester may request this, and the approvals that it needs.

        An agent may request what both the agent and the person that it acts for may request. On an
        enrolled host, which runs only what people have signed, the requester and an owner sign.
        """
        ruling = self._get_request_ruling(request)
        enrolled = self._list_enrolled_hosts(request)
        if not enrolled or not ruling.allowed or request.kind != "change":
            return ruling
        if request.agent is not None or request.source == "schedule":
            return _rule_unsigned(request, ruling, enrolled)
        areas = sorted({host.area for host in enrolled})
        signed = ApprovalRequirements(
            tuple(ApprovalDemand(1, ((f"area:{area}",),)) for area in areas),
            requires_signature=True,
            requires_signed_request=True,
        )
        note = "The host itself checks signatures: the requester and an owner sign the plan."
        # Rules that need no approval say so, which is not true of this host.
        others = ruling.policy_notes if ruling.required_approvals else ()
        return replace(
            ruling,
            policy_notes=(*others, note),
            requirements=ruling.requirements.merge_with(signed),
        )

    def _get_request_ruling(self, request: PolicyRequest) -> Ruling:
        ruling = self._get_ruling(request.requested_by, "request", request)
        if request.agent is None or not ruling.allowed:
            return ruling
        if request.agent.owner not in self.organisation.people:
            note = f"{request.agent.owner}, who owns the agent, is not in the policy"
            return Ruling(allowed=False, policy_notes=(note,))
        if not request.agent.behalf:
            return ruling
        return combine_rulings(
            [ruling, self._get_ruling(request.agent.behalf, "request", request)]
        )

    def get_break_glass_ruling(self, request: PolicyRequest) -> Ruling:
        """Return whether the requester may use break-glass: skip freezes and approvals.

        An enrolled host would refuse what no one has signed.
        """
        if enrolled := self._list_enrolled_hosts(request):
            name = enrolled[0].name
            note = f"{name} checks itself who signed a change, so break-glass does not help there"
            return Ruling(allowed=False, policy_notes=(note,))
        return self._get_ruling(request.requested_by, "break-glass", request)

    def _list_enrolled_hosts(self, request: PolicyRequest) -> list[Host]:
        """Return the hosts of a request that check signatures themselves."""
        known = map(self.inventory.hosts.get, request.hosts or (request.host,))
        return [host for host in known if host and host.signed]

    def get_approval_ruling(self, person: str, request: PolicyRequest, ruling: Ruling) -> Ruling:
        """Return whether *person* can give one of the approvals that *ruling* requires."""
        if request.is_made_by(person):
            # Whatever the rules permit, an approval must come from a second person.
            made = "made" if person == request.requested_by else "edited or scheduled"
            if request.agent is not None and person not in request.editors:
                made = "made through an agent"
            return Ruling(
                allowed=False, policy_notes=(f"no one can approve a request that they {made}",)
            )
        if is_agent(person):
            return Ruling(allowed=False, policy_notes=("an agent never decides",))
        approval = self._get_ruling(person, "approve", request)
        if not approval.allowed:
            return approval
        if not self.can_view(person, request):
            return Ruling(
                allowed=False, policy_notes=("no one can approve a run that they cannot view",)
            )
        if ruling.approver_groups and not ruling.requirements.accepts_any_of(
            self.list_groups(person)
        ):
            return Ruling(
                allowed=False,
                policy_notes=(
                    f"only {self.describe_approver_groups(ruling.requirements)} can approve it",
                ),
            )
        return approval

    def list_possible_margins(self) -> Sequence[int]:
        """Return the margins that a plan can leave, as far as a rule depends on them.

        The last is that of a plan that takes down no leg.
        """
        legs = [
            sum(event.leg is not None for event in analysis.events)
            for analysis in self.trees.values()
        ]
        if "margin" not in self.mentions or not any(legs):
            return [NO_LIMIT]
        most = max(len(analysis.events) for analysis in self.trees.values())
        return [*range(most + 1), NO_LIMIT]

    def is_forbidden(self, person: str, action: str, request: PolicyRequest) -> bool:
        """Return whether a rule forbids it, as opposed to no rule permitting it."""
        requests = [replace(part, host=host, hosts=()) for part, host in request.iterate_hosts()]
        rulings = [self._get_host_ruling(person, action, one) for one in requests]
        return any(ruling.rules and not ruling.allowed for ruling in rulings)

    def is_met(self, requirements: ApprovalRequirements, people: Collection[str]) -> bool:
        """Return whether the approvals of these people, who may give them, are enough."""
        return not self.count_missing_approvals(requirements, people)

    def count_missing_approvals(
        self, requirements: ApprovalRequirements, people: Collection[str]
    ) -> int:
        """Return the smallest number of approvals that are still missing."""
        return requirements.count_missing({person: self.list_groups(person) for person in people})

    def list_groups(self, person: str) -> frozenset[str]:
        """Return the groups whose approvals a person can give: "role:security", "area:edge"."""
        known = self.organisation.people.get(person)
        if known is None:
            return frozenset()
        areas = self._owned_areas.get(person, ())
        return frozenset(
            [*(f"role:{role}" for role in known.roles), *(f"area:{area}" for area in areas)]
        )

    def list_approvers(self, request: PolicyRequest, ruling: Ruling) -> list[Person]:
        """Return everyone who can approve the request, sorted by name."""
        people = self.organisation.people
        able = self.select_approvers(people, request, ruling)
        return sorted((people[person] for person in able), key=lambda person: person.name)

    def select_approvers(
        self, people: Iterable[str], request: PolicyRequest, ruling: Ruling
    ) -> list[str]:
        """Return those of these people of the policy who can approve the request."""
        hosts = (self.inventory.hosts.get(host) for _, host in request.iterate_hosts())
        groups = frozenset(ruling.approver_groups)
        return self._select_people(
            (person for person in people if not request.is_made_by(person)),
            {host.area for host in hosts if host}
            | {area for area in self.organisation.areas if f"area:{area}" in groups},
            lambda person: self.get_approval_ruling(person, request, ruling).allowed,
        )

    def describe_approver_groups(self, requirements: ApprovalRequirements) -> str:
        """Return the groups in words: "the owners of the edge"."""
        return " and ".join(self._describe_demand(demand) for demand in requirements.demands)

    def _describe_demand(self, demand: ApprovalDemand) -> str:
        places = [
            " or ".join(self._describe_group(group) for group in place)
            for place in demand.group_sets
        ]
        if len(places) == 1:
            return places[0]
        return f"{', '.join(places[:-1])} and {places[-1]}, one of each"

    def _describe_group(self, group: str) -> str:
        kind, _, name = group.partition(":")
        if group.startswith(f"role:{ROLE_PREFIX}"):
            return f"the person on duty ({name})"
        if kind == "role":
            return f"people with the {name} role"
        area = self.organisation.areas.get(name)
        return f"the owners of {area.title if area else name}"

    def _get_ruling(self, person: str, action: str, request: PolicyRequest) -> Ruling:
        """Return the strictest ruling of all hosts and runbooks."""
        if request.parts:
            parts = request.split_parts()
            return combine_rulings([self._get_ruling(person, action, each) for each in parts])
        if not request.hosts:
            return self._get_host_ruling(person, action, request)
        # The same request is evaluated again before each of its hosts, so the ruling is cached.
        hashable = replace(request, hosts=tuple(request.hosts), editors=tuple(request.editors))
        return self._get_hosts_ruling(person, action, hashable)

    def _compute_hosts_ruling(self, person: str, action: str, request: PolicyRequest) -> Ruling:
        # One host is evaluated for all hosts with the same rulings.
        first: dict[Hashable, str] = {}
        for host in request.hosts:
            first.setdefault(self.host_likenesses.get(host, host), host)
        rulings = {
            host: self._get_host_ruling(person, action, replace(request, host=host))
            for host in first.values()
        }
        ruling = combine_rulings([*rulings.values()])
        if not ruling.allowed:
            return replace(
                ruling,
                policy_notes=self._describe_refusals_by_area(rulings) or ruling.policy_notes,
            )
        if action == "request" and request.host_count > ruling.max_hosts:
            note = (
                f"at most {ruling.max_hosts} hosts per request, and this has {request.host_count}"
            )
            return Ruling(allowed=False, policy_notes=(note,))
        return ruling

    def _describe_refusals_by_area(self, rulings: Mapping[str, Ruling]) -> Sequence[str]:
        """Return which of several areas the rules refuse, and why; () if all have one reason."""
        known = self.inventory.hosts
        reasons: dict[str, str] = {}
        for host, ruling in rulings.items():
            area = self.get_area(host).title if host in known else host
            reason = ruling.refusal_reason
            reasons[area] = reasons.get(area) or ("" if ruling.allowed else reason)
        if len(set(reasons.values())) == 1:
            return ()
        return tuple(f"in {area}: {reason}" for area, reason in reasons.items() if reason)

    def _get_host_ruling(self, person: str, action: str, request: PolicyRequest) -> Ruling:
        if not self._is_known(person):
            return Ruling(allowed=False, policy_notes=(f"{person} is not in the policy",))
        if request.host not in self.inventory.hosts:
            return Ruling(allowed=False, policy_notes=(f"{request.host} is not in the inventory",))
        context = self._build_cedar_context(person, request)
        # The time is a part of the key only if a rule depends on it: most do not.
        values = tuple(
            str(value) for name, value in context.items() if name != "now" or name in self.mentions
        )
        is_owner = person in self.get_area(request.host).owners
        likeness = self._likenesses_elsewhere.get(person, person)
        cache_key = (likeness, is_owner, action, request.host, request.is_review_overdue, *values)
        cached = self._rulings.get(cache_key)
        if cached is not None:
            return cached
        if len(self._rulings) >= _MAX_CACHED_RULINGS:
            self._rulings.clear()
        self._rulings[cache_key] = ruling = self._rules.compute_ruling(
            self._build_entities(person, request.host),
            person=person,
            action=action,
            host=request.host,
            area=self.inventory[request.host].area,
            context=context,
            is_review_overdue=request.is_review_overdue,
        )
        return ruling

    def _build_cedar_context(self, person: str, request: PolicyRequest) -> dict[str, object]:
        utc = to_datetime(request.now)
        local = utc.astimezone(ZoneInfo(self.inventory[request.host].zone))
        frozen = self.find_freeze([request.host], runbook=request.runbook, now=request.now)
        return {
            "runbook": request.runbook,
            "kind": request.kind,
            "reversible": request.reversible,
            "source": request.source,
            "own": request.is_made_by(person),
            "hosts": request.host_count,
            "first_time": request.is_first_success,
            "frozen": bool(frozen),
            "now": {"__extn": {"fn": "datetime", "arg": f"{utc:%Y-%m-%dT%H:%M:%S}Z"}},
            "weekday": WEEKDAYS[local.weekday()],
            "hour": local.hour,
            "escalated": request.is_escalated,
            "delegated": request.is_delegated,
            "granted": request.has_grant,
            "margin": request.margin,
            "override": request.overrides_guard,
            "oncall": self.count_on_duty(self.inventory[request.host].area),
            "agent": get_agent_name(request.requested_by) if request.agent else "",
            "behalf": request.agent.behalf if request.agent else "",
        }

    def _is_known(self, principal: str) -> bool:
        """Return whether this is a person of the policy, or an agent: the policy lists none."""
        return principal in self.organisation.people or is_agent(principal)

    def _build_entities(self, principal: str, host: str = "") -> cedarpy.Entities:
        """Return the entities on which a ruling depends: these two, and those that rules read."""
        people = [self._build_person_entity(named) for named in self._inspected_people]
        if is_agent(principal):
            people.append(_build_agent_entity(get_agent_name(principal)))
        elif f"Person::{principal}" not in self._rules.inspected and (
            one := self.find_person(principal)
        ):
            people.append(self._build_person_entity(one))
        return self._named_hosts.with_added_json_str(
            json.dumps([*people, *self._list_host_entities([host])])
        )

    def _build_named_hosts(self) -> cedarpy.Entities:
        """Return the entities of the hosts whose data rules may read, in Cedar's form."""
        return cedarpy.Entities.from_json_str(
            json.dumps([*self._list_host_entities(self._inspected_hosts)])
        )

    def _list_host_entities(self, names: Iterable[str]) -> Iterator[dict[str, object]]:
        """Yield the entities of hosts. Of a removed host, only the area is known."""
        for name in names:
            if host := self.inventory.hosts.get(name):
                yield _build_host_entity(name=name, area=host.area, tags=host.tags)
            elif (area := self._areas_of_former_hosts.get(name)) is not None:
                yield _build_host_entity(name=name, area=area, tags=frozenset[str]())

    @cached_property
    def _areas_of_former_hosts(self) -> Mapping[str, str]:
        """The area for each name that stands for removed hosts."""
        return {name_former_host(area): area for area in ("", *self.organisation.areas)}

    @cached_property
    def _inspected_people(self) -> Sequence[Person]:
        people = self.organisation.people.values()
        return [one for one in people if f"Person::{one.id}" in self._rules.inspected]

    @cached_property
    def _inspected_hosts(self) -> Sequence[str]:
        return [name for name in self.inventory.hosts if f"Host::{name}" in self._rules.inspected]

    @cached_property
    def _owned_areas(self) -> Mapping[str, Sequence[str]]:
        """The areas of each person who owns one."""
        owned: dict[str, list[str]] = defaultdict(list)
        for area in self.organisation.areas.values():
            for owner in area.owners:
                owned[owner].append(area.name)
        return owned

    def _build_person_entity(self, person: Person) -> dict[str, object]:
        roles = [{"type": "Role", "id": role} for role in person.roles]
        owned = [{"type": "Owners", "id": area} for area in self._owned_areas.get(person.id, ())]
        return {
            "uid": {"type": "Person", "id": person.id},
            "attrs": {"name": person.name},
            "parents": roles + owned,
        }


def _build_agent_entity(name: str) -> dict[str, object]:
    return {"uid": {"type": "Agent", "id": name}, "attrs": {"name": name}, "parents": []}


def _assume_least_margin(_tx: Any, policy: Policy, run: Run) -> int:
    return 0 if run.plan and policy.has_protected(run.plan.legs) else NO_LIMIT


def _build_host_entity(*, name: str, area: str, tags: Collection[str]) -> dict[str, object]:
    return {
        "uid": {"type": "Host", "id": name},
        "attrs": {
            "owners": {"__entity": {"type": "Owners", "id": area}},
            "tags": sorted(tags),
        },
        "parents": [{"type": "Area", "id": area}] if area else [],
    }
