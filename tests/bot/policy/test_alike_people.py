"""People whom the rules treat alike are asked about once: the answers are those of each alone."""

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import cedarpy
import pytest

from bot.model.approvals import ApprovalDemand, ApprovalRequirements
from bot.policy import Organisation, Person, Policy, PolicyRequest
from bot.policy.cedar import Rules, Ruling
from bot.policy.freezes import FreezeList
from bot.policy.oncall import Duty, DutyCalendar
from connectors.inventory import Host, Inventory
from tests.policies import HOST_KEY, write_policy

NOON = 1_792_584_000_000_000
ROLES, AREAS, TAGS = ("admin", "dev", "oncall:ops"), ("edge", "core", "store"), ("web", "nfs")
PEOPLE = tuple(f"p{n}" for n in range(7))
HOSTS = ("h1", "h2", "h3")
CONDITIONS = (
    "unless { context.own }",
    "",
    "when { principal in resource.owners }",
    'when { resource.tags.contains("web") }',
    'when { principal.name like "A*" }',
    'when { Person::"p1" in Role::"admin" }',
    'when { principal in Role::"oncall:ops" && Person::"p2" in Role::"oncall:ops" }',
    'when { Host::"h2".tags.contains("nfs") }',
    'when { principal in Host::"h2".owners }',
    'when { principal in (if resource == Host::"h2" then resource else Host::"h3").owners }',
    'when { context.runbook == "one thing" }',
)
PRINCIPALS = (
    "principal is Person",
    'principal == Person::"p3"',
    *(f'principal in Role::"{role}"' for role in ROLES),
    *(f'principal in Owners::"{area}"' for area in AREAS[:2]),
)
RESOURCES = ("resource", 'resource == Host::"h1"', 'resource in Area::"core"')
GROUPS = (*(f"role:{one}" for one in ROLES), *(f"area:{one}" for one in AREAS))
CALENDAR = DutyCalendar(name="ops", file="ops.ics")


def draw_policy(draw: Random) -> Policy:
    """Return a random policy whose people can view every run, unless a rule hides it."""
    texts = [_draw_rule(draw) for _ in range(draw.randint(2, 9))]
    texts.append('permit (principal, action == Action::"view", resource);')
    people = {
        name: {
            "id": name,
            "name": draw.choice(["Ada", "Ben"]),
            "roles": draw.sample(ROLES[:2], draw.randint(0, 2)),
        }
        for name in PEOPLE
    }
    areas = {
        name: {"name": name, "title": f"the {name}", "owners": draw.sample(PEOPLE, 2)}
        for name in AREAS
    }
    hosts = {
        name: {
            "area": draw.choice(AREAS),
            "tags": draw.sample(TAGS, draw.randint(0, 2)),
            "address": "127.0.0.1",
            "host_key": HOST_KEY,
        }
        for name in HOSTS
    }
    return Policy(
        Organisation.model_validate({"people": people, "areas": areas}),
        Inventory.model_validate({"hosts": hosts}),
        Rules("\n".join(f'@id("r{n}") {text}' for n, text in enumerate(texts))),
        FreezeList(),
        version="0",
        calendars={"ops": CALENDAR},
    )


def _draw_rule(draw: Random) -> str:
    effect = draw.choice(["permit", "permit", "forbid"])
    action = draw.choice(["approve", "approve", "view", "stop", "resume"])
    who = draw.choice(PRINCIPALS)
    if action in {"stop", "resume"}:
        return f'{effect} ({who}, action == Action::"{action}", resource);'
    # Who only looks at a run has made none.
    condition = draw.choice(CONDITIONS[action == "view" :])
    resource = draw.choice(RESOURCES)
    return f'{effect} ({who}, action == Action::"{action}", {resource}) {condition};'


class CedarItself:
    """Asks Cedar about one person at a time, with every entity that there is."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rules = cedarpy.PolicySet.from_str(policy.rules.text)
        people = [_build_person(policy, one) for one in policy.organisation.people.values()]
        hosts = [_build_host(one) for one in policy.inventory]
        self._entities = cedarpy.Entities.from_json_str(json.dumps([*people, *hosts]))

    def list_approvers(self, request: PolicyRequest, groups: Collection[str]) -> set[str]:
        return {
            person
            for person in self._policy.organisation.people
            if not request.is_made_by(person)
            and not self._policy.list_groups(person).isdisjoint(groups)
            and self._can_do(person, "approve", f'Host::"{request.host}"')
            and self._can_do(person, "view", f'Host::"{request.host}"')
        }

    def list_people_allowed(self, order: str) -> list[str]:
        people = self._policy.organisation.people.values()
        return [one.name for one in people if self._can_do(one.id, order, 'Service::"keyturn"')]

    def _can_do(self, person: str, action: str, resource: str) -> bool:
        query = {
            "principal": f'Person::"{person}"',
            "action": f'Action::"{action}"',
            "resource": resource,
            "context": {"runbook": "one thing", "own": False},
        }
        answer = cedarpy.is_authorized(query, self._rules, self._entities)
        return answer.allowed and not answer.diagnostics.errors


def _build_person(policy: Policy, one: Person) -> dict[str, Any]:
    areas = policy.organisation.areas.values()
    return {
        "uid": {"type": "Person", "id": one.id},
        "attrs": {"name": one.name},
        "parents": [
            *({"type": "Role", "id": role} for role in one.roles),
            *({"type": "Owners", "id": area.name} for area in areas if one.id in area.owners),
        ],
    }


def _build_host(host: Host) -> dict[str, Any]:
    owners = {"__entity": {"type": "Owners", "id": host.area}}
    return {
        "uid": {"type": "Host", "id": host.name},
        "attrs": {"owners": owners, "tags": sorted(host.tags)},
        "parents": [{"type": "Area", "id": host.area}],
    }


@pytest.mark.parametrize("seed", range(40))
def test_answers_of_alike_people_are_those_of_each_person_alone(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - a repeatable choice
    policy = draw_policy(draw)
    request = PolicyRequest(
        *("one thing", "change", draw.choice(HOSTS), "web", draw.choice(PEOPLE)),
        now=NOON,
        editors=draw.choice([(), ("p0",), ("p3",)]),
    )
    groups = draw.sample(GROUPS, 4)
    ruling = Ruling(
        allowed=True, requirements=ApprovalRequirements((ApprovalDemand(1, (tuple(groups),)),))
    )
    banned = frozenset(draw.sample(PEOPLE, 2))
    duties = [{"ops": Duty((one,), is_known=True)} for one in draw.sample(PEOPLE, 2)]
    copies = [
        policy.without_people(banned),
        *(policy.with_duties(duty) for duty in duties),
        policy.without_people(banned | {"p1"}).with_duties(duties[0]),
    ]
    # The copies share what they can with the policy, and with one another.
    for one in (policy, *copies, policy):
        cedar = CedarItself(one)
        able = {person.id for person in one.list_approvers(request, ruling)}
        assert able == cedar.list_approvers(request, groups)
        for order in ("stop", "resume"):
            allowed = one.list_people_allowed(order, except_person="")
            assert allowed == cedar.list_people_allowed(order)


def test_approvers_are_asked_about_once_for_all_who_are_alike(tmp_path: Path) -> None:
    directory = write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    more = "".join(f"  p{n}: {{name: P {n}, roles: [administrator]}}\n" for n in range(300))
    people.write_text(people.read_text() + more)
    areas = tmp_path / "areas.yaml"
    owned = "".join(f"  a{n}: {{title: area {n}, owners: [p{n}]}}\n" for n in range(100))
    areas.write_text(areas.read_text() + owned)
    policy, asked = directory.get_policy(), Counter[str]()
    compute = policy.rules.compute_ruling

    def count(*given: Any, **facts: Any) -> Ruling:
        asked[facts["action"]] += 1
        return compute(*given, **facts)

    policy.rules.compute_ruling = count
    request = PolicyRequest("abusers clear", "change", "lb1", "web", "dora", now=NOON)
    ruling = policy.get_request_ruling(request)
    policy.list_approvers(request, ruling)
    # Owners of the host's area, other administrators and developers, whatever else they own.
    assert asked["approve"] <= 5
    before = asked.total()
    policy.list_approvers(request, ruling)
    assert asked.total() == before


def test_copy_without_the_same_banned_people_is_made_once(tmp_path: Path) -> None:
    policy = write_policy(tmp_path).get_policy()
    assert policy.without_people(["adam"]) is policy.without_people({"adam"})
    assert policy.without_people(["olga"]).find_person("adam") is not None
    assert policy.without_people([]) is policy
