"""The policy as a whole: people, areas, hosts and rules, and what they say together. Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo

import cedarpy

from bot.model.approvals import ApprovalRequirements, Demand
from bot.model.view_rights import Sight, former_area
from bot.policy.cedar import KINDS, Rules, RulesError, Ruling, strictest_ruling
from bot.policy.freezes import DAYS, Freezes
from bot.policy.people import Area, Household, Person
from bot.policy.problem import NoPolicy, Problem
from connectors.inventory import Host, Inventory

# So many different questions are remembered with their answers.
_MOST_ANSWERS = 4096

Order = Literal["stop", "resume", "ban"]


@dataclass(frozen=True)
class Request:
    """What the rules look at. asked_by: whose request it is; own: compared with it by person.

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
    door: str
    asked_by: str
    reversible: bool = True
    hosts: Sequence[str] = ()
    now: int = field(kw_only=True)
    novel: bool = True
    escalated: bool = False
    editors: Sequence[str] = ()
    instead: bool = False
    granted: bool = False

    def made_by(self, person: str) -> bool:
        return person == self.asked_by or person in self.editors


class Policy:
    """One version of the policy, never changed once loaded. version: 12 hex digits.

    files: the digest of each file that it was read from, 12 hex digits.
    names: what people are called, by their ids; of those who are shut out, too.
    """

    def __init__(
        self,
        household: Household,
        inventory: Inventory,
        rules: Rules,
        freezes: Freezes,
        *,
        version: str,
        files: Mapping[str, str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.household, self.inventory, self.version = household, inventory, version
        self.files = files or {}
        self.names = names or {one.id: one.name for one in household.people.values()}
        self.freezes = freezes
        self._rules = rules
        self._entities = cedarpy.Entities.from_json_str(
            json.dumps([*self._described(), *self._former_hosts()])
        )
        self._sights: dict[str, Sight] = {}
        # It never changes, and an answer follows from what is asked.
        self._judged = lru_cache(64)(self._judge_all)
        self._answers: dict[tuple[str, ...], Ruling] = {}

    def person(self, identifier: str) -> Person | None:
        return self.household.people.get(identifier)

    def name_person(self, identifier: str) -> str:
        """Return what a person is called; whoever has left the policy is told by their id."""
        return self.names.get(identifier, identifier)

    def area_of(self, host: str) -> Area:
        return self.household.areas[self.inventory[host].area]

    def titles(self, areas: Sequence[str]) -> str:
        """Return what areas are called: `the core and the edge`; one that is gone by its name."""
        known = self.household.areas
        return " and ".join(known[name].title if name in known else name for name in areas)

    def able_to(self, order: Order, *, besides: str) -> list[str]:
        """Return the names of all who may order this, but for one person."""
        people = self.household.people.values()
        return [
            one.name
            for one in people
            if one.id != besides and self.may_order(one.id, order).allowed
        ]

    @property
    def rules(self) -> Rules:
        return self._rules

    @property
    def mentioned(self) -> frozenset[str]:
        """What the rules look at: attributes by name, and whom they name, such as `Host::lb1`."""
        return self._rules.mentioned

    def likenesses(self, kind: str, mentioned: frozenset[str] | None = None) -> dict[str, str]:
        """Return all that the rules see of each Person or Host: those alike are answered alike.

        Whoever a rule names is like nobody else. mentioned: what some of the rules look at; None
        for what all of them do.
        """
        mentioned = self.mentioned if mentioned is None else mentioned
        found: dict[str, str] = {}
        for entity in cast("list[dict[str, Any]]", self._described()):
            if entity["uid"]["type"] == kind:
                name: str = entity["uid"]["id"]
                seen = {key: entity["attrs"][key] for key in entity["attrs"] if key in mentioned}
                alone = name if f"{kind}::{name}" in mentioned else ""
                found[name] = json.dumps([seen, entity["parents"], alone])
        return found

    @cached_property
    def hosts_alike(self) -> Mapping[str, str]:
        """By host, all that an answer about it depends on: also its zone, where the clock is."""
        seen = self.likenesses("Host")
        return {name: f"{likeness} {self.inventory[name].zone}" for name, likeness in seen.items()}

    def supposing(self, hosts: Sequence[Host], freezes: Freezes) -> "Policy":
        """Return this policy with hosts that there are not yet, and with other freezes."""
        known = {**self.inventory.hosts, **{host.name: host for host in hosts}}
        inventory = self.inventory.model_copy(update={"hosts": known})
        return Policy(self.household, inventory, self._rules, freezes, version=self.version)

    def with_rule(self, rule: str) -> "Policy":
        """Return this policy with one rule more. Raises NoPolicy if it cannot be understood."""
        try:
            rules = Rules(f"{self._rules.text}\n{rule}")
        except RulesError as bad:
            raise NoPolicy(Problem(str(bad), line=bad.line)) from None
        return Policy(self.household, self.inventory, rules, self.freezes, version=self.version)

    def without(self, banned: Collection[str]) -> "Policy":
        """Return this policy as it is while some people are shut out: as if it had never known
        them."""
        house = self.household
        people = {name: one for name, one in house.people.items() if name not in banned}
        if len(people) == len(house.people):
            return self
        areas = {
            name: area.model_copy(
                update={"owners": tuple(one for one in area.owners if one not in banned)}
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
            names=self.names,
        )

    def may_order(self, person: str, order: Order, *, own: bool = False) -> Ruling:
        """Say whether somebody may stop everything, ban a person, or take either back.

        own: whether it was the same person who stopped, or who banned.
        """
        if person not in self.household.people:
            return Ruling(allowed=False, says=(f"{person} is not among the people of the policy",))
        return self._rules.judge_order(self._entities, person=person, order=order, own=own)

    def frozen(self, *, host: str, runbook: str, now: int) -> str:
        """Say in words why changes of this host wait now; "" if they do not."""
        area = self.area_of(host)
        found = self.freezes.over(area=area.name, runbook=runbook, now=now)
        if found is None:
            return ""
        name, end = found
        return f"{area.title} is frozen until {end:%Y-%m-%d %H:%M} UTC ({name})"

    def sight(self, person: str) -> Sight:
        """Return what this person may view."""
        known = self._sights.get(person)
        if known is None:
            known = self._sights[person] = self._sight(person)
        return known

    def _sight(self, person: str) -> Sight:
        looked_at = self._rules.viewing
        groups: dict[str, list[str]] = {}
        for host, likeness in self.likenesses("Host", looked_at.mentioned).items():
            groups.setdefault(likeness, []).append(host)
        return Sight(
            person,
            hosts=[*groups.values()],
            areas=[*self.household.areas],
            runbooks=looked_at.runbooks if "runbook" in looked_at.mentioned else None,
            closed=looked_at.closed,
            kinds=KINDS if "kind" in looked_at.mentioned else ("",),
            judge=lambda host, runbook, kind: self._views(person, host, runbook, kind).allowed,
        )

    def may_view(self, person: str, request: Request) -> Ruling:
        """Say whether the rules let *person* view such a run, on each of its hosts.

        What somebody asked for or decided is shown to them whatever the rules say.
        """
        hosts = request.hosts or [request.host]
        return strictest_ruling(
            [self._views(person, host, request.runbook, request.kind) for host in hosts]
        )

    def sees(self, person: str, request: Request) -> bool:
        """Say whether they may view it, as may_view() does; answers are remembered."""
        sight = self.sight(person)
        return all(
            sight.may_view(host=host, runbook=request.runbook, kind=request.kind)
            for host in request.hosts or [request.host]
        )

    def _views(self, person: str, host: str, runbook: str, kind: str) -> Ruling:
        if person not in self.household.people:
            return Ruling(allowed=False, says=(f"{person} is not among the people of the policy",))
        known = self.inventory.hosts.get(host)
        return self._rules.judge(
            self._entities,
            person=person,
            action="view",
            host=host,
            area=known.area if known else "",
            context={"runbook": runbook, "kind": kind},
        )

    def may_ask(self, request: Request) -> Ruling:
        """Say whether the asker may have this done, and with how many approvals of whom."""
        return self._judge(request.asked_by, "ask", request)

    def may_break_glass(self, request: Request) -> Ruling:
        """Say whether the asker may go through a freeze and without approvals in an emergency."""
        return self._judge(request.asked_by, "break-glass", request)

    def may_approve(self, person: str, request: Request, ruling: Ruling) -> Ruling:
        """Say whether *person* is among those whose approval *ruling* wants for this request."""
        if request.made_by(person):
            # The rules say so too, but a second key is a second person's whatever they say.
            mine = "asked for" if person == request.asked_by else "edited or scheduled"
            return Ruling(allowed=False, says=(f"nobody approves what they {mine}",))
        answer = self._judge(person, "approve", request)
        if not answer.allowed:
            return answer
        if not self.sees(person, request):
            return Ruling(allowed=False, says=("nobody approves what they may not view",))
        if ruling.groups and not ruling.terms.wants(self.groups_of(person)):
            return Ruling(allowed=False, says=(f"approval is up to {self.whose(ruling.terms)}",))
        return answer

    def forbids(self, person: str, action: str, request: Request) -> bool:
        """Say whether a rule forbids it to this person: more than that none permits it."""
        alone = [replace(request, host=host, hosts=()) for host in request.hosts] or [request]
        rulings = [self._judge_one(person, action, one) for one in alone]
        return any(ruling.rules and not ruling.allowed for ruling in rulings)

    def met(self, terms: ApprovalRequirements, people: Collection[str]) -> bool:
        """Say whether the approvals of these people, who may give them, are enough."""
        return not self.missing(terms, people)

    def missing(self, terms: ApprovalRequirements, people: Collection[str]) -> int:
        """Return how many more approvals it takes at the least."""
        return terms.missing({person: self.groups_of(person) for person in people})

    def groups_of(self, person: str) -> frozenset[str]:
        """Return the groups whose approvals a person can give: "role:security", "area:edge"."""
        known = self.household.people.get(person)
        if known is None:
            return frozenset()
        owned = (area for area in self.household.areas.values() if person in area.owners)
        return frozenset(
            [*(f"role:{role}" for role in known.roles), *(f"area:{area.name}" for area in owned)]
        )

    def approvers(self, request: Request, ruling: Ruling) -> list[Person]:
        """Return everybody who could turn the second key, by name."""
        able = [
            person
            for person in self.household.people.values()
            if self.may_approve(person.id, request, ruling).allowed
        ]
        return sorted(able, key=lambda person: person.name)

    def whose(self, terms: ApprovalRequirements) -> str:
        """Return the groups in words: "the owners of the edge"."""
        return " and ".join(self._in_words(demand) for demand in terms.demands)

    def _in_words(self, demand: Demand) -> str:
        places = [" or ".join(self._called(group) for group in place) for place in demand.each]
        if len(places) == 1:
            return places[0]
        return f"{', '.join(places[:-1])} and {places[-1]}, one of each"

    def _called(self, group: str) -> str:
        kind, _, name = group.partition(":")
        if kind == "role":
            return f"people with the {name} role"
        area = self.household.areas.get(name)
        return f"the owners of {area.title if area else name}"

    def _judge(self, person: str, action: str, request: Request) -> Ruling:
        """Ask about every host: the strictest answer is the answer."""
        if not request.hosts:
            return self._judge_one(person, action, request)
        # Asked again before each of the hosts, and of the same moment once it is under way.
        told = replace(request, hosts=tuple(request.hosts), editors=tuple(request.editors))
        return self._judged(person, action, told)

    def _judge_all(self, person: str, action: str, request: Request) -> Ruling:
        # Those alike are answered alike, so that one of them is asked about for all.
        first: dict[str, str] = {}
        for host in request.hosts:
            first.setdefault(self.hosts_alike.get(host, host), host)
        rulings = {
            host: self._judge_one(person, action, replace(request, host=host))
            for host in first.values()
        }
        ruling = strictest_ruling([*rulings.values()])
        if not ruling.allowed:
            return replace(ruling, says=self._where_not(rulings) or ruling.says)
        if action == "ask" and len(request.hosts) > ruling.ceiling:
            why = f"at most {ruling.ceiling} hosts at once, and these are {len(request.hosts)}"
            return Ruling(allowed=False, says=(why,))
        return ruling

    def _where_not(self, rulings: Mapping[str, Ruling]) -> Sequence[str]:
        """Say which of several areas the rules refuse, and why; nothing where all are alike."""
        known = self.inventory.hosts
        whys: dict[str, str] = {}
        for host, ruling in rulings.items():
            where = self.area_of(host).title if host in known else host
            why = "; ".join(ruling.says) or "no rule of the policy allows it"
            whys[where] = whys.get(where) or ("" if ruling.allowed else why)
        if len(set(whys.values())) == 1:
            return ()
        return tuple(f"in {where}: {why}" for where, why in whys.items() if why)

    def _judge_one(self, person: str, action: str, request: Request) -> Ruling:
        if person not in self.household.people:
            return Ruling(allowed=False, says=(f"{person} is not among the people of the policy",))
        if request.host not in self.inventory.hosts:
            return Ruling(allowed=False, says=(f"{request.host} is not in the inventory",))
        context = self._context(person, request)
        # An answer follows from what the rules see, and most of them do not look at the clock.
        seen = tuple(
            str(told) for name, told in context.items() if name != "now" or name in self.mentioned
        )
        question = (person, action, request.host, *seen)
        known = self._answers.get(question)
        if known is not None:
            return known
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[question] = ruling = self._rules.judge(
            self._entities,
            person=person,
            action=action,
            host=request.host,
            area=self.inventory[request.host].area,
            context=context,
        )
        return ruling

    def _context(self, person: str, request: Request) -> dict[str, object]:
        moment = datetime.fromtimestamp(request.now / 1_000_000, UTC)
        there = moment.astimezone(ZoneInfo(self.inventory[request.host].zone))
        frozen = self.frozen(host=request.host, runbook=request.runbook, now=request.now)
        return {
            "runbook": request.runbook,
            "kind": request.kind,
            "reversible": request.reversible,
            "door": request.door,
            "own": request.made_by(person),
            "hosts": len(request.hosts) or 1,
            "novel": request.novel,
            "frozen": bool(frozen),
            "now": {"__extn": {"fn": "datetime", "arg": f"{moment:%Y-%m-%dT%H:%M:%S}Z"}},
            "weekday": DAYS[there.weekday()],
            "hour": there.hour,
            "escalated": request.escalated,
            "instead": request.instead,
            "granted": request.granted,
        }

    def _described(self) -> list[dict[str, object]]:
        """Return the entities in Cedar's JSON form."""
        people = [self._described_person(person) for person in self.household.people.values()]
        return people + [
            _described_host(name=host.name, area=host.area, tags=host.tags)
            for host in self.inventory
        ]

    def _former_hosts(self) -> list[dict[str, object]]:
        """Return what rules see of hosts that left the inventory: of each only the area."""
        areas = ["", *self.household.areas]
        return [
            _described_host(name=former_area(area), area=area, tags=frozenset[str]())
            for area in areas
        ]

    def _described_person(self, person: Person) -> dict[str, object]:
        roles = [{"type": "Role", "id": role} for role in person.roles]
        owned = [
            {"type": "Owners", "id": area.name}
            for area in self.household.areas.values()
            if person.id in area.owners
        ]
        return {
            "uid": {"type": "Person", "id": person.id},
            "attrs": {"name": person.name},
            "parents": roles + owned,
        }


def _described_host(*, name: str, area: str, tags: Collection[str]) -> dict[str, object]:
    return {
        "uid": {"type": "Host", "id": name},
        "attrs": {
            "owners": {"__entity": {"type": "Owners", "id": area}},
            "tags": sorted(tags),
        },
        "parents": [{"type": "Area", "id": area}] if area else [],
    }
