"""Take one leg of a bond out of use for maintenance of its cable, and return it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import bond as bonds
from connectors import bond_leg
from connectors.bond import Bond, BondMember, LinkCounters
from connectors.bond_leg import LegState
from connectors.command import QueryRunner
from connectors.errors import ParseError
from connectors.probation import Probation
from runbooks import BondName, Change, Host, Leg, Plan, Refused, Step

LegName = Annotated[
    str,
    Field(
        pattern=bonds.NAME,
        description="The member of the bond, such as eth1",
        json_schema_extra={"lists": "bond members", "within": ["bond"]},
    ),
]


@dataclass(frozen=True)
class Legs:
    """A bond, and the network cards of its host."""

    bond: Bond
    links: Mapping[str, LinkCounters]


class _SetLeg(Change[Legs]):
    """Sets a leg up or down; subclasses say which, and what to refuse."""

    host: Host
    bond: BondName
    leg: LegName

    def read(self, run_query: QueryRunner) -> Legs:
        there = run_query(self.host, bonds.query_bonds())
        if self.bond not in there:
            raise Refused(f"{self.host} has no {self.bond}: it has {', '.join(there) or 'none'}")
        bond = run_query(self.host, bonds.query_bond(self.bond))
        if bond.is_lacp_hidden:
            # Without LACP's details it is unknown which legs carry traffic.
            bond = run_query(self.host, bonds.query_bond_as_root(self.bond))
        return Legs(bond, run_query(self.host, bonds.query_links()))

    def get_probation(self) -> Probation:
        return bond_leg.make_probation(self.leg)

    def make_plan(self, legs: Legs, state: LegState, title: str, notes: Sequence[str]) -> Plan:
        """Return the plan that sets the leg up or down, without steps if it is so already."""
        member, link = self.find_leg(legs)
        now: LegState = "up" if link.is_enabled else "down"
        found = f"{self.leg} of {self.bond} is set {now}, and its link is {member.link_state}"
        if now == state:
            return Plan(found)
        step = Step(
            title,
            self.host,
            do=bond_leg.set_leg(self.bond, self.leg, state),
            undo=bond_leg.set_leg(self.bond, self.leg, now),
            before=f"set {now}",
            after=f"set {state}",
        )
        return Plan(found, [step], notes)

    def find_leg(self, legs: Legs) -> tuple[BondMember, LinkCounters]:
        names = [member.name for member in legs.bond.members]
        if self.leg not in names:
            raise Refused(f"{self.leg} is no member of {self.bond}: {', '.join(names) or 'none'}")
        if self.leg not in legs.links:
            raise ParseError(f"{self.bond} has {self.leg}, but ip does not list it")
        return legs.bond.members[names.index(self.leg)], legs.links[self.leg]

    def list_other_legs(self, bond: Bond) -> list[str]:
        """Return the legs that carry traffic without this one."""
        return [
            member.name
            for member in bond.members
            if member.name != self.leg and bond.is_carrying(member)
        ]

    def refuse_last_leg(self, bond: Bond) -> None:
        if not self.list_other_legs(bond):
            others = [member.name for member in bond.members if member.name != self.leg]
            repair = f"repair {', '.join(others)} first" if others else "it has no other member"
            raise Refused(
                f"{self.leg} is the last leg of {self.bond}: no other one carries traffic. "
                f"{repair[0].upper()}{repair[1:]}"
            )


class TakeLeg(
    _SetLeg,
    words="bond leg take",
    example="nas1 bond0 eth1",
    undo="returns the leg, on probation",
):
    """Take one leg of a bond out of use, for maintenance of its cable."""

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, self.leg)]

    def plan(self, legs: Legs) -> Plan:
        plan = self.plan_anyway(legs)
        if plan.steps:
            self.refuse_last_leg(legs.bond)
            if not legs.bond.is_monitored:
                raise Refused(
                    f"the links of {self.bond} are not monitored (miimon is 0), so it would go on "
                    f"sending through {self.leg}: set miimon=100 first"
                )
        return plan

    def plan_anyway(self, legs: Legs) -> Plan:
        title = f"Take {self.leg} out of {self.bond}"
        return self.make_plan(legs, "down", title, list(self._list_notes(legs.bond)))

    def _list_notes(self, bond: Bond) -> Iterator[str]:
        others = self.list_other_legs(bond)
        yield f"Left to carry the traffic of {self.bond}: {', '.join(others) or 'none'}."
        yield (
            "Some cards keep their link while they are down, and the switch goes on sending to "
            "them: check that the switch's port is down before you pull the cable."
        )
        yield "The next boot returns the leg, and so may a service that manages the network."


class ReturnLeg(
    _SetLeg,
    words="bond leg return",
    example="nas1 bond0 eth1",
    undo="takes the leg out again, on probation",
):
    """Return a leg to its bond after maintenance."""

    def plan(self, legs: Legs) -> Plan:
        title = f"Return {self.leg} to {self.bond}"
        note = "The host waits up to 20 s for the link. Run `bond check` after that."
        return self.make_plan(legs, "up", title, [note])

    def refuse_undo(self, legs: Legs) -> None:
        self.refuse_last_leg(legs.bond)
