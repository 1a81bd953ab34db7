"""What the runbooks of power strips share: an outlet, and what the inventory has behind it."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import pdu
from connectors.command import QueryRunner
from connectors.pdu import Action, Outlet
from runbooks import Change, Host, Leg, NoUndo, Plan, Refused, Step, make_host_field

OutletNumber = Annotated[
    str,
    Field(
        pattern=r"^[1-9][0-9]{0,2}(\.[1-9][0-9]{0,2})?$",
        description="The outlet, as `power outlets show` lists it",
    ),
]


@dataclass(frozen=True)
class OutletState:
    """One outlet and what is behind it."""

    outlet: Outlet
    behind: tuple[Leg, ...] | None
    """What its power goes to; None if the inventory does not say."""

    def describe(self, host: str) -> str:
        """Return a noun phrase: `outlet 3 of pdu1 (web1/psu1)`."""
        listed = ", ".join(map(str, self.behind or ())) or "nothing"
        behind = "unknown" if self.behind is None else listed
        return f"outlet {self.outlet.number} of {host} ({behind})"


class ChangeOfOutlet(Change[OutletState]):
    """Changes the power of one outlet."""

    host: Host = make_host_field("pdu")
    outlet: OutletNumber

    def read(self, run_query: QueryRunner) -> OutletState:
        return read_outlet(run_query, self.host, self.outlet)


def read_outlet(run_query: QueryRunner, host: str, number: str) -> OutletState:
    """Return the state of an outlet. Raises Refused if the strip has no such outlet."""
    outlets = run_query(host, pdu.query_outlets())
    behind = run_query(host, pdu.query_behind()).get(number)
    for outlet in outlets:
        if outlet.number == number:
            legs = None if behind is None else tuple(map(Leg.parse, behind))
            return OutletState(outlet, legs)
    listed = f"{outlets[0].number} to {outlets[-1].number}"
    raise Refused(f"{host} has no outlet {number}: it has {listed}")


def plan_outlet(state: OutletState, host: str, action: Action, undo: Action | NoUndo) -> Plan:
    """Return the plan with the one step that turns an outlet on or off, or cycles it."""
    outlet, legs = state.outlet, state.behind or ()
    named = state.describe(host)
    current = f"{named} is {outlet.state}"
    if outlet.state == action:
        # Undoing it cuts the power.
        return Plan(current, takes_down=legs if action == "on" else ())
    if state.behind is None and action != "on":
        raise Refused(
            f"the inventory does not say what is behind outlet {outlet.number} of {host}: add it "
            f'to its settings, such as power.outlets: "{outlet.number}=web1/psu1", or '
            f'"{outlet.number}=-" for nothing'
        )
    step = Step(
        f"Cycle {named}" if action == "cycle" else f"Turn {action} {named}",
        host,
        do=pdu.switch_outlet(outlet, action),
        undo=undo if isinstance(undo, NoUndo) else pdu.switch_outlet(outlet, undo),
        before=outlet.state,
        after="off, then on" if action == "cycle" else action,
    )
    notes = [f"The power strip calls this outlet “{outlet.name}”."] if outlet.name else []
    return Plan(current, [step], notes, takes_down=() if action == "on" else legs)
