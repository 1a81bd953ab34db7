"""Turn an outlet of a power strip on or off, or cycle it."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from connectors import pdu
from connectors.command import QueryRunner
from connectors.pdu import Action, Outlet
from runbooks import Change, Host, Leg, NoUndo, Plan, Refused, Report, Step, make_host_field

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


class _ChangeOutlet(Change[OutletState]):
    """Changes the power of one outlet; subclasses say how."""

    host: Host = make_host_field("pdu")
    outlet: OutletNumber

    def read(self, run_query: QueryRunner) -> OutletState:
        outlets = run_query(self.host, pdu.query_outlets())
        behind = run_query(self.host, pdu.query_behind()).get(self.outlet)
        for outlet in outlets:
            if outlet.number == self.outlet:
                legs = None if behind is None else tuple(map(Leg.parse, behind))
                return OutletState(outlet, legs)
        listed = f"{outlets[0].number} to {outlets[-1].number}"
        raise Refused(f"{self.host} has no outlet {self.outlet}: it has {listed}")

    def name_outlet(self, state: OutletState) -> str:
        """Return a noun phrase: `outlet 3 of pdu1 (web1/psu1)`."""
        listed = ", ".join(map(str, state.behind or ())) or "nothing"
        behind = "unknown" if state.behind is None else listed
        return f"outlet {self.outlet} of {self.host} ({behind})"

    def describe(self, state: OutletState) -> str:
        return f"{self.name_outlet(state)} is {state.outlet.state}"

    def make_plan(self, state: OutletState, action: Action, undo: Action | NoUndo) -> Plan:
        """Return the plan with the one step that turns an outlet on or off, or cycles it."""
        outlet, legs = state.outlet, state.behind or ()
        if outlet.state == action:
            # Undoing it cuts the power.
            return Plan(self.describe(state), takes_down=legs if action == "on" else ())
        if state.behind is None and action != "on":
            raise Refused(
                f"the inventory does not say what is behind outlet {self.outlet} of {self.host}: "
                f'add it to its settings, such as power.outlets: "{self.outlet}=web1/psu1", or '
                f'"{self.outlet}=-" for nothing'
            )
        named = self.name_outlet(state)
        step = Step(
            f"Cycle {named}" if action == "cycle" else f"Turn {action} {named}",
            self.host,
            do=pdu.switch_outlet(outlet, action),
            undo=undo if isinstance(undo, NoUndo) else pdu.switch_outlet(outlet, undo),
            before=outlet.state,
            after="off, then on" if action == "cycle" else action,
        )
        notes = [f"The power strip calls this outlet “{outlet.name}”."] if outlet.name else []
        takes_down = () if action == "on" else legs
        return Plan(self.describe(state), [step], notes, takes_down=takes_down)


class TurnOutletOn(
    _ChangeOutlet,
    words="power outlet on",
    example="pdu1 3",
    undo="turns it off again",
    sets="power of outlet {outlet}",
):
    """Turn an outlet of a power strip on."""

    def plan(self, state: OutletState) -> Plan:
        return self.make_plan(state, "on", undo="off")


class TurnOutletOff(
    _ChangeOutlet,
    words="power outlet off",
    example="pdu1 3",
    undo="turns it on again",
    sets="power of outlet {outlet}",
):
    """Turn an outlet of a power strip off."""

    def plan(self, state: OutletState) -> Plan:
        return self.make_plan(state, "off", undo="on")


class CycleOutlet(_ChangeOutlet, words="power outlet cycle", example="pdu1 3"):
    """Turn an outlet of a power strip off, and on again after the time set in the strip."""

    def plan(self, state: OutletState) -> Plan:
        if state.outlet.state != "on":
            raise Refused(f"{self.describe(state)}: request `power outlet on`")
        undo = NoUndo("what runs behind the outlet loses its power without a shutdown")
        return self.make_plan(state, "cycle", undo)

    def plan_after(self, state: OutletState) -> Plan:
        # The strip confirmed the cycle. It keeps no time of it that could be read.
        return Plan(f"the strip accepted the cycle; {self.describe(state)}")

    def report_progress(self, state: OutletState) -> Report | None:
        is_off = state.outlet.state == "off"
        return Report(self.describe(state), healthy=not is_off, running=is_off)
