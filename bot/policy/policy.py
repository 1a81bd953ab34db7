"""The policy as a whole: people, areas, hosts and rules, and what they say together. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import cedarpy

from bot.policy.freezes import Freezes
from bot.policy.people import Area, Household, Person
from bot.policy.rules import Rules, Ruling, strictest
from connectors.inventory import Host, Inventory


class NoPolicy(Exception):
    """There is no valid policy, so nobody may do anything. The message says what is wrong."""


@dataclass(frozen=True)
class Request:
    """What the rules look at. asked_by: whose request it is; own: compared with it by person.

    hosts: all of them where the request is for several; they are in one area.
    """

    runbook: str
    kind: str
    host: str
    door: str
    asked_by: str
    reversible: bool = True
    hosts: Sequence[str] = ()


class Policy:
    """One version of the policy, never changed once loaded. version: 12 hex digits."""

    def __init__(
        self,
        household: Household,
        inventory: Inventory,
        rules: Rules,
        freezes: Freezes,
        *,
        version: str,
    ) -> None:
        self.household, self.inventory, self.version = household, inventory, version
        self.freezes = freezes
        self._rules = rules
        for host in inventory:
            if host.area not in household.areas:
                raise NoPolicy(f"host {host.name}: area {host.area} is not in areas.yaml")
        self._entities = cedarpy.Entities.from_json_str(json.dumps(self._described()))

    def person(self, identifier: str) -> Person | None:
        return self.household.people.get(identifier)

    def area_of(self, host: str) -> Area:
        return self.household.areas[self.inventory[host].area]

    @property
    def mentioned(self) -> frozenset[str]:
        """What the rules look at: attributes by name, and whom they name, such as `Host::lb1`."""
        return self._rules.mentioned

    def likenesses(self, kind: str) -> dict[str, str]:
        """Return all that the rules see of each Person or Host: those alike are answered alike.

        Whoever a rule names is like nobody else.
        """
        found: dict[str, str] = {}
        for entity in cast("list[dict[str, Any]]", self._described()):
            if entity["uid"]["type"] == kind:
                name: str = entity["uid"]["id"]
                seen = {
                    key: entity["attrs"][key] for key in entity["attrs"] if key in self.mentioned
                }
                alone = name if f"{kind}::{name}" in self.mentioned else ""
                found[name] = json.dumps([seen, entity["parents"], alone])
        return found

    def supposing(self, hosts: Sequence[Host]) -> "Policy":
        """Return this policy with hosts that there are not yet, to ask what it would say."""
        known = {**self.inventory.hosts, **{host.name: host for host in hosts}}
        inventory = self.inventory.model_copy(update={"hosts": known})
        return Policy(self.household, inventory, self._rules, self.freezes, version=self.version)

    def frozen(self, *, host: str, runbook: str, now: int) -> str:
        """Say in words why changes of this host wait now; "" if they do not."""
        area = self.area_of(host)
        found = self.freezes.over(area=area.name, runbook=runbook, now=now)
        if found is None:
            return ""
        name, end = found
        return f"{area.title} is frozen until {end:%Y-%m-%d %H:%M} UTC ({name})"

    def may_ask(self, request: Request) -> Ruling:
        """Say whether the asker may have this done, and with how many approvals of whom."""
        return self._judge(request.asked_by, "ask", request)

    def may_approve(self, person: str, request: Request, ruling: Ruling) -> Ruling:
        """Say whether *person* is among those whose approval *ruling* wants for this request.

        Of a request for several hosts, each host's own rules must want that person.
        """
        if person == request.asked_by:
            # The rules say so too, but a second key is a second person's whatever they say.
            return Ruling(allowed=False, says=("nobody approves what they asked for",))
        for host in request.hosts:
            alone = replace(request, host=host, hosts=())
            answer = self.may_approve(person, alone, self.may_ask(alone))
            if not answer.allowed:
                return answer
        answer = self._judge(person, "approve", request)
        if not answer.allowed:
            return answer
        if ruling.groups and not any(
            self._belongs(person, group, request.host) for group in ruling.groups
        ):
            return Ruling(
                allowed=False, says=(f"approval is up to {self.whose(request, ruling)}",)
            )
        return answer

    def approvers(self, request: Request, ruling: Ruling) -> list[Person]:
        """Return everybody who could turn the second key, by name."""
        able = [
            person
            for person in self.household.people.values()
            if self.may_approve(person.id, request, ruling).allowed
        ]
        return sorted(able, key=lambda person: person.name)

    def whose(self, request: Request, ruling: Ruling) -> str:
        """Return the groups in words: "the owners of the edge"."""
        title = self.area_of(request.host).title
        words = [
            f"the owners of {title}" if group == "owners" else f"people with the {group[5:]} role"
            for group in ruling.groups
        ]
        return " or ".join(words)

    def _belongs(self, person: str, group: str, host: str) -> bool:
        if group == "owners":
            return person in self.area_of(host).owners
        known = self.household.people.get(person)
        return known is not None and group.removeprefix("role:") in known.roles

    def _judge(self, person: str, action: str, request: Request) -> Ruling:
        """Ask about every host: the strictest answer is the answer."""
        if not request.hosts:
            return self._judge_one(person, action, request)
        rulings = [
            self._judge_one(person, action, replace(request, host=host)) for host in request.hosts
        ]
        ruling = strictest(rulings)
        too_many = action == "ask" and len(request.hosts) > ruling.ceiling
        if ruling.allowed and too_many:
            why = f"at most {ruling.ceiling} hosts at once, and these are {len(request.hosts)}"
            return Ruling(allowed=False, says=(why,))
        return ruling

    def _judge_one(self, person: str, action: str, request: Request) -> Ruling:
        if person not in self.household.people:
            return Ruling(allowed=False, says=(f"{person} is not among the people of the policy",))
        if request.host not in self.inventory.hosts:
            return Ruling(allowed=False, says=(f"{request.host} is not in the inventory",))
        return self._rules.judge(
            self._entities,
            person=person,
            action=action,
            host=request.host,
            context={
                "runbook": request.runbook,
                "kind": request.kind,
                "reversible": request.reversible,
                "door": request.door,
                "own": person == request.asked_by,
            },
        )

    def _described(self) -> list[dict[str, object]]:
        """Return the entities in Cedar's JSON form."""
        people = [self._described_person(person) for person in self.household.people.values()]
        return people + [_described_host(host) for host in self.inventory]

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


def _described_host(host: Host) -> dict[str, object]:
    return {
        "uid": {"type": "Host", "id": host.name},
        "attrs": {
            "owners": {"__entity": {"type": "Owners", "id": host.area}},
            "tags": sorted(host.tags),
        },
        "parents": [{"type": "Area", "id": host.area}],
    }
