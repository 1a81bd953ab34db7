"""The policy as a whole: people, areas, hosts and rules, and what they say together. Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo

import cedarpy

from bot.model.approvals import ApprovalDemand, ApprovalRequirements
from bot.model.view_rights import ViewRights, name_former_host
from bot.policy.cedar import RUNBOOK_KINDS, Rules, RulesError, Ruling, combine_rulings
from bot.policy.freezes import WEEKDAYS, FreezeList
from bot.policy.people import Area, Organisation, Person
from bot.policy.problem import NoPolicyError, PolicyProblem
from connectors.inventory import Host, Inventory

# So many different questions are remembered with their answers.
_MAX_CACHED_RULINGS = 4096

Order = Literal["stop", "resume", "ban"]


@dataclass(frozen=True)
class PolicyRequest:
    """What the rules look at. requested_by: whose request it is; own: compared with it by person.

    hosts: all of them where the request is for several; those of a change are in one area.
    now: microseconds since 1970. novel: its asker has never had this runbook succeed, which is
    supposed where nobody has looked. escalated: the next group may approve as well.
    editors: who else made it what it is, and so cannot approve it either: whoever edited its
    values, and the owner of its schedule.
    instead: somebody decides in the stead of the person who is asked about. granted: a standing
    grant stands in for the approval.
    """

    runbook: str
    kind: str
    host: str
    source: str
    requested_by: str
    reversible: bool = True
    hosts: Sequence[str] = ()
    now: int = field(kw_only=True)
    is_first_success: bool = True
    is_escalated: bool = False
    editors: Sequence[str] = ()
    is_delegated: bool = False
    has_grant: bool = False

    def is_made_by(self, person: str) -> bool:
        return person == self.requested_by or person in self.editors


class Policy:
    """One version of the policy, never changed once loaded. version: 12 hex digits.

    files: the digest of each file that it was read from, 12 hex digits.
    names: what people are called, by their ids; of those who are shut out, too.
    """

    def __init__(
        self,
        organisation: Organisation,
        inventory: Inventory,
        rules: Rules,
        freezes: FreezeList,
        *,
        version: str,
        files: Mapping[str, str] | None = None,
        person_names: Mapping[str, str] | None = None,
    ) -> None:
        self.organisation, self.inventory, self.version = organisation, inventory, version
        self.files = files or {}
        self.person_names = person_names or {
            one.id: one.name for one in organisation.people.values()
        }
        self.freezes = freezes
        self._rules = rules
        self._entities = cedarpy.Entities.from_json_str(
            json.dumps([*self._build_entities(), *self._build_former_host_entities()])
        )
        self._view_rights: dict[str, ViewRights] = {}
        # It never changes, and an answer follows from what is asked.
        self._get_hosts_ruling = lru_cache(64)(self._compute_hosts_ruling)
        self._rulings: dict[tuple[str, ...], Ruling] = {}

    def find_person(self, person_id: str) -> Person | None:
        return self.organisation.people.get(person_id)

    def get_person_name(self, person_id: str) -> str:
        """Return what a person is called; whoever has left the policy is told by their id."""
        return self.person_names.get(person_id, person_id)

    def get_area(self, host: str) -> Area:
        return self.organisation.areas[self.inventory[host].area]

    def join_area_titles(self, areas: Sequence[str]) -> str:
        """Return what areas are called: `the core and the edge`; one that is gone by its name."""
        known = self.organisation.areas
        return " and ".join(known[name].title if name in known else name for name in areas)

    def list_people_allowed(self, order: Order, *, except_person: str) -> list[str]:
        """Return the names of all who may order this, but for one person."""
        people = self.organisation.people.values()
        return [
            one.name
            for one in people
            if one.id != except_person and self.get_order_ruling(one.id, order).allowed
        ]

    @property
    def rules(self) -> Rules:
        return self._rules

    @property
    def mentions(self) -> frozenset[str]:
        """What the rules look at: attributes by name, and whom they name, such as `Host::lb1`."""
        return self._rules.mentioned

    def group_alike_entities(
        self, kind: str, mentions: frozenset[str] | None = None
    ) -> dict[str, str]:
        """Return all that the rules see of each Person or Host: those alike are answered alike.

        Whoever a rule names is like nobody else. mentioned: what some of the rules look at; None
        for what all of them do.
        """
        mentions = self.mentions if mentions is None else mentions
        found: dict[str, str] = {}
        for entity in cast("list[dict[str, Any]]", self._build_entities()):
            if entity["uid"]["type"] == kind:
                name: str = entity["uid"]["id"]
                seen = {key: entity["attrs"][key] for key in entity["attrs"] if key in mentions}
                alone = name if f"{kind}::{name}" in mentions else ""
                found[name] = json.dumps([seen, entity["parents"], alone])
        return found

    @cached_property
    def host_likenesses(self) -> Mapping[str, str]:
        """By host, all that an answer about it depends on: also its zone, where the clock is."""
        seen = self.group_alike_entities("Host")
        return {name: f"{likeness} {self.inventory[name].zone}" for name, likeness in seen.items()}

    def with_hosts_and_freezes(self, hosts: Sequence[Host], freezes: FreezeList) -> "Policy":
        """Return this policy with hosts that there are not yet, and with other freezes."""
        known = {**self.inventory.hosts, **{host.name: host for host in hosts}}
        inventory = self.inventory.model_copy(update={"hosts": known})
        return Policy(self.organisation, inventory, self._rules, freezes, version=self.version)

    def with_rule(self, rule: str) -> "Policy":
        """Return this policy with one rule more. Raises NoPolicy if it cannot be understood."""
        try:
            rules = Rules(f"{self._rules.text}\n{rule}")
        except RulesError as bad:
            raise NoPolicyError(PolicyProblem(str(bad), line=bad.line)) from None
        return Policy(self.organisation, self.inventory, rules, self.freezes, version=self.version)

    def without_people(self, banned_people: Collection[str]) -> "Policy":
        """Return this policy as it is while some people are shut out: as if it had never known
        them."""
        house = self.organisation
        people = {name: one for name, one in house.people.items() if name not in banned_people}
        if len(people) == len(house.people):
            return self
        areas = {
            name: area.model_copy(
                update={"owners": tuple(one for one in area.owners if one not in banned_people)}
            )
            for name, area in house.areas.items()
        }
        left = house.model_copy(update={"people": people, "areas": areas})
        return Policy(
            left,
            self.inventory,
            self._rules,
            self.freezes,
            version=self.version,
            person_names=self.person_names,
        )

    def get_order_ruling(self, person: str, order: Order, *, is_own: bool = False) -> Ruling:
        """Say whether somebody may stop everything, ban a person, or take either back.

        own: whether it was the same person who stopped, or who banned.
        """
        if person not in self.organisation.people:
            return Ruling(
                allowed=False, policy_notes=(f"{person} is not among the people of the policy",)
            )
        return self._rules.compute_order_ruling(
            self._entities, person=person, order=order, is_own=is_own
        )

    def describe_freeze(self, *, host: str, runbook: str, now: int) -> str:
        """Say in words why changes of this host wait now; "" if they do not."""
        area = self.get_area(host)
        found = self.freezes.find_longest_active(area=area.name, runbook=runbook, now=now)
        if found is None:
            return ""
        name, end = found
        return f"{area.title} is frozen until {end:%Y-%m-%d %H:%M} UTC ({name})"

    def get_view_rights(self, person: str) -> ViewRights:
        """Return what this person may view."""
        known = self._view_rights.get(person)
        if known is None:
            known = self._view_rights[person] = self._build_view_rights(person)
        return known

    def _build_view_rights(self, person: str) -> ViewRights:
        looked_at = self._rules.view_rules
        groups: dict[str, list[str]] = {}
        for host, likeness in self.group_alike_entities("Host", looked_at.mentioned).items():
            groups.setdefault(likeness, []).append(host)
        return ViewRights(
            person,
            host_groups=[*groups.values()],
            areas=[*self.organisation.areas],
            runbooks=looked_at.runbooks if "runbook" in looked_at.mentioned else None,
            compares_runbooks_only=looked_at.compares_runbooks_only,
            kinds=RUNBOOK_KINDS if "kind" in looked_at.mentioned else ("",),
            decide=lambda host, runbook, kind: (
                self._compute_view_ruling(person, host, runbook, kind).allowed
            ),
        )

    def get_view_ruling(self, person: str, request: PolicyRequest) -> Ruling:
        """Say whether the rules let *person* view such a run, on each of its hosts.

        What somebody asked for or decided is shown to them whatever the rules say.
        """
        hosts = request.hosts or [request.host]
        return combine_rulings(
            [
                self._compute_view_ruling(person, host, request.runbook, request.kind)
                for host in hosts
            ]
        )

    def can_view(self, person: str, request: PolicyRequest) -> bool:
        """Say whether they may view it, as may_view() does; answers are remembered."""
        sight = self.get_view_rights(person)
        return all(
            sight.can_view(host=host, runbook=request.runbook, kind=request.kind)
            for host in request.hosts or [request.host]
        )

    def _compute_view_ruling(self, person: str, host: str, runbook: str, kind: str) -> Ruling:
        if person not in self.organisation.people:
            return Ruling(
                allowed=False, policy_notes=(f"{person} is not among the people of the policy",)
            )
        known = self.inventory.hosts.get(host)
        return self._rules.compute_ruling(
            self._entities,
            person=person,
            action="view",
            host=host,
            area=known.area if known else "",
            context={"runbook": runbook, "kind": kind},
        )

    def get_request_ruling(self, request: PolicyRequest) -> Ruling:
        """Say whether the asker may have this done, and with how many approvals of whom."""
        return self._get_ruling(request.requested_by, "ask", request)

    def get_break_glass_ruling(self, request: PolicyRequest) -> Ruling:
        """Say whether the asker may go through a freeze and without approvals in an emergency."""
        return self._get_ruling(request.requested_by, "break-glass", request)

    def get_approval_ruling(self, person: str, request: PolicyRequest, ruling: Ruling) -> Ruling:
        """Say whether *person* is among those whose approval *ruling* wants for this request."""
        if request.is_made_by(person):
            # The rules say so too, but a second key is a second person's whatever they say.
            mine = "asked for" if person == request.requested_by else "edited or scheduled"
            return Ruling(allowed=False, policy_notes=(f"nobody approves what they {mine}",))
        answer = self._get_ruling(person, "approve", request)
        if not answer.allowed:
            return answer
        if not self.can_view(person, request):
            return Ruling(allowed=False, policy_notes=("nobody approves what they may not view",))
        if ruling.approver_groups and not ruling.requirements.accepts_any_of(
            self.list_groups(person)
        ):
            return Ruling(
                allowed=False,
                policy_notes=(
                    f"approval is up to {self.describe_approver_groups(ruling.requirements)}",
                ),
            )
        return answer

    def is_forbidden(self, person: str, action: str, request: PolicyRequest) -> bool:
        """Say whether a rule forbids it to this person: more than that none permits it."""
        alone = [replace(request, host=host, hosts=()) for host in request.hosts] or [request]
        rulings = [self._get_host_ruling(person, action, one) for one in alone]
        return any(ruling.rules and not ruling.allowed for ruling in rulings)

    def is_met(self, requirements: ApprovalRequirements, people: Collection[str]) -> bool:
        """Say whether the approvals of these people, who may give them, are enough."""
        return not self.count_missing_approvals(requirements, people)

    def count_missing_approvals(
        self, requirements: ApprovalRequirements, people: Collection[str]
    ) -> int:
        """Return how many more approvals it takes at the least."""
        return requirements.count_missing({person: self.list_groups(person) for person in people})

    def list_groups(self, person: str) -> frozenset[str]:
        """Return the groups whose approvals a person can give: "role:security", "area:edge"."""
        known = self.organisation.people.get(person)
        if known is None:
            return frozenset()
        owned = (area for area in self.organisation.areas.values() if person in area.owners)
        return frozenset(
            [*(f"role:{role}" for role in known.roles), *(f"area:{area.name}" for area in owned)]
        )

    def list_approvers(self, request: PolicyRequest, ruling: Ruling) -> list[Person]:
        """Return everybody who could turn the second key, by name."""
        able = [
            person
            for person in self.organisation.people.values()
            if self.get_approval_ruling(person.id, request, ruling).allowed
        ]
        return sorted(able, key=lambda person: person.name)

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
        if kind == "role":
            return f"people with the {name} role"
        area = self.organisation.areas.get(name)
        return f"the owners of {area.title if area else name}"

    def _get_ruling(self, person: str, action: str, request: PolicyRequest) -> Ruling:
        """Ask about every host: the strictest answer is the answer."""
        if not request.hosts:
            return self._get_host_ruling(person, action, request)
        # Asked again before each of the hosts, and of the same moment once it is under way.
        told = replace(request, hosts=tuple(request.hosts), editors=tuple(request.editors))
        return self._get_hosts_ruling(person, action, told)

    def _compute_hosts_ruling(self, person: str, action: str, request: PolicyRequest) -> Ruling:
        # Those alike are answered alike, so that one of them is asked about for all.
        first: dict[str, str] = {}
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
        if action == "ask" and len(request.hosts) > ruling.max_hosts:
            why = f"at most {ruling.max_hosts} hosts at once, and these are {len(request.hosts)}"
            return Ruling(allowed=False, policy_notes=(why,))
        return ruling

    def _describe_refusals_by_area(self, rulings: Mapping[str, Ruling]) -> Sequence[str]:
        """Say which of several areas the rules refuse, and why; nothing where all are alike."""
        known = self.inventory.hosts
        whys: dict[str, str] = {}
        for host, ruling in rulings.items():
            where = self.get_area(host).title if host in known else host
            why = "; ".join(ruling.policy_notes) or "no rule of the policy allows it"
            whys[where] = whys.get(where) or ("" if ruling.allowed else why)
        if len(set(whys.values())) == 1:
            return ()
        return tuple(f"in {where}: {why}" for where, why in whys.items() if why)

    def _get_host_ruling(self, person: str, action: str, request: PolicyRequest) -> Ruling:
        if person not in self.organisation.people:
            return Ruling(
                allowed=False, policy_notes=(f"{person} is not among the people of the policy",)
            )
        if request.host not in self.inventory.hosts:
            return Ruling(allowed=False, policy_notes=(f"{request.host} is not in the inventory",))
        context = self._build_cedar_context(person, request)
        # An answer follows from what the rules see, and most of them do not look at the clock.
        seen = tuple(
            str(told) for name, told in context.items() if name != "now" or name in self.mentions
        )
        question = (person, action, request.host, *seen)
        known = self._rulings.get(question)
        if known is not None:
            return known
        if len(self._rulings) >= _MAX_CACHED_RULINGS:
            self._rulings.clear()
        self._rulings[question] = ruling = self._rules.compute_ruling(
            self._entities,
            person=person,
            action=action,
            host=request.host,
            area=self.inventory[request.host].area,
            context=context,
        )
        return ruling

    def _build_cedar_context(self, person: str, request: PolicyRequest) -> dict[str, object]:
        moment = datetime.fromtimestamp(request.now / 1_000_000, UTC)
        there = moment.astimezone(ZoneInfo(self.inventory[request.host].zone))
        frozen = self.describe_freeze(host=request.host, runbook=request.runbook, now=request.now)
        return {
            "runbook": request.runbook,
            "kind": request.kind,
            "reversible": request.reversible,
            "source": request.source,
            "own": request.is_made_by(person),
            "hosts": len(request.hosts) or 1,
            "novel": request.is_first_success,
            "frozen": bool(frozen),
            "now": {"__extn": {"fn": "datetime", "arg": f"{moment:%Y-%m-%dT%H:%M:%S}Z"}},
            "weekday": WEEKDAYS[there.weekday()],
            "hour": there.hour,
            "escalated": request.is_escalated,
            "instead": request.is_delegated,
            "granted": request.has_grant,
        }

    def _build_entities(self) -> list[dict[str, object]]:
        """Return the entities in Cedar's JSON form."""
        people = [
            self._build_person_entity(person) for person in self.organisation.people.values()
        ]
        return people + [
            _build_host_entity(name=host.name, area=host.area, tags=host.tags)
            for host in self.inventory
        ]

    def _build_former_host_entities(self) -> list[dict[str, object]]:
        """Return what rules see of hosts that left the inventory: of each only the area."""
        areas = ["", *self.organisation.areas]
        return [
            _build_host_entity(name=name_former_host(area), area=area, tags=frozenset[str]())
            for area in areas
        ]

    def _build_person_entity(self, person: Person) -> dict[str, object]:
        roles = [{"type": "Role", "id": role} for role in person.roles]
        owned = [
            {"type": "Owners", "id": area.name}
            for area in self.organisation.areas.values()
            if person.id in area.owners
        ]
        return {
            "uid": {"type": "Person", "id": person.id},
            "attrs": {"name": person.name},
            "parents": roles + owned,
        }


def _build_host_entity(*, name: str, area: str, tags: Collection[str]) -> dict[str, object]:
    return {
        "uid": {"type": "Host", "id": name},
        "attrs": {
            "owners": {"__entity": {"type": "Owners", "id": area}},
            "tags": sorted(tags),
        },
        "parents": [{"type": "Area", "id": area}] if area else [],
    }
