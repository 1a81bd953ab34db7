"""Enable or disable a port of a switch, or set the VLAN of an access port."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from connectors import probation, switch, switch_port, switch_tables
from connectors.command import CONFIRM, Query, QueryRunner
from connectors.device_output import LACKS_FEATURE
from connectors.errors import CommandError
from connectors.probation import DEVICE
from connectors.switch_port import MAX_VLAN, REVERT_MINUTES, PortSettings
from connectors.switch_tables import Neighbour
from runbooks import Change, Host, Leg, Plan, Refused, Step, make_host_field

PortName = Annotated[
    str,
    Field(
        pattern=switch_port.NAME,
        description="The port, such as Gi1/0/3, or g3 on a Dell",
        json_schema_extra={"lists": "switch ports"},
    ),
]
T = TypeVar("T")
# What a switch without a protocol answers.
_OFF = ("is not enabled", LACKS_FEATURE)
_KEEP = "Keep the change, over a new connection"


@dataclass(frozen=True)
class PortState:
    """A port, its switch, and what is at the other end of the cable."""

    name: str
    """As the switch names it in its table of ports."""
    status: str
    """The state of its link."""
    settings: PortSettings
    neighbours: Sequence[Neighbour] | None
    """None where no protocol that would show them is enabled."""
    is_uplink: bool
    """Whether the inventory or the operation of the port says that it leads to other switches."""
    can_revert: bool = False
    """Whether the switch can revert a change by itself."""
    is_pending: bool = False
    """Whether a change of someone else waits for its confirmation there."""
    vlans: frozenset[int] = frozenset()
    """The VLANs of the switch."""
    fault: str = ""
    """Why the switch has stopped it, such as `err-disabled (bpduguard)`; "" if it has not."""

    def describe_activity(self) -> str:
        """Return whether the port is enabled, as a predicate."""
        return self.fault or ("enabled" if self.settings.is_enabled else "disabled")


class _Port(Change[PortState]):
    host: Host = make_host_field("switch")
    port: PortName


class _PortAndVlan(_Port):
    # A class of its own, since fields without a default come first where people type them.
    vlan: Annotated[int, Field(ge=1, le=MAX_VLAN, title="VLAN", description=f"1 to {MAX_VLAN}")]


class _ChangePort(_Port):
    """Changes one line of a port's configuration; subclasses say which."""

    revert: Annotated[
        Literal["timer", "none"],
        Field(
            title="If it cuts Keyturn off",
            description="timer: the switch reverts it by itself; none: it stays as it is",
        ),
    ] = "timer"
    uplink: Annotated[
        Literal["refuse", "allow"],
        Field(
            title="If a switch is at the other end",
            description="Whether to change a port with a switch or router at the other end",
        ),
    ] = "refuse"

    def read(self, run_query: QueryRunner) -> PortState:
        ports = switch.read_ports(run_query, self.host)
        found = next((each for each in ports if switch.is_same_port(each.name, self.port)), None)
        if found is None:
            raise Refused(f"{self.host} has no port {self.port}")
        settings = run_query(self.host, switch_port.query_settings(found.name))
        uplinks = run_query(self.host, switch_port.query_uplinks())
        is_uplink = found.vlan == "trunk" or any(
            switch.is_same_port(found.name, each) for each in uplinks
        )
        vlans = frozenset(vlan.number for vlan in run_query(self.host, switch.query_vlans()))
        state = PortState(
            found.name, found.state, settings, None, is_uplink, vlans=vlans, fault=found.fault
        )
        if settings.can_revert:
            return self._read_cisco(run_query, state)
        is_enabled = run_query(self.host, switch_port.query_is_enabled(found.name))
        return replace(state, settings=replace(settings, is_enabled=is_enabled))

    def _read_cisco(self, run_query: QueryRunner, state: PortState) -> PortState:
        state = replace(state, neighbours=self._read_neighbours(run_query, state.name))
        if not _run_optional(run_query, self.host, switch_port.query_archive()):
            return state
        timer = run_query(self.host, probation.query_probation(DEVICE.name))
        return replace(state, can_revert=True, is_pending=bool(timer.armed))

    def _read_neighbours(self, run_query: QueryRunner, port: str) -> Sequence[Neighbour] | None:
        queries = (switch_tables.query_cdp_neighbours(), switch_tables.query_lldp_neighbours())
        found = [_run_optional(run_query, self.host, query) for query in queries]
        if all(neighbours is None for neighbours in found):
            return None
        return [
            each
            for neighbours in found
            for each in neighbours or ()
            if switch.is_same_port(each.port, port)
        ]

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host, switch.shorten_port(self.port))]

    def plan(self, state: PortState) -> Plan:
        plan = self.plan_anyway(state)
        if plan.steps:
            self.refuse_unsafe(state)
        return plan

    def make_plan(
        self, state: PortState, title: str, lines: tuple[str, ...], values: tuple[str, str]
    ) -> Plan:
        """Return the plan that enters lines; no steps if they are in force.

        lines: those to enter, and at the end the one that undoes them. values: before and after,
        as predicates.
        """
        *do_lines, undo_line = lines
        settings, (before, after) = state.settings, values
        found = f"{state.name} is {before}"
        if before != state.fault:
            found += f", and its link is {state.fault or state.status}"
        if before == after:
            return Plan(found)
        with_timer = self.revert == "timer"
        do = switch_port.make_lines(settings, *do_lines, with_timer=with_timer)
        undo = switch_port.make_lines(settings, undo_line, with_timer=with_timer)
        if not with_timer:
            step = Step(title, self.host, do=do, undo=undo, before=before, after=after)
            return Plan(found, [step], list(self._list_notes(state)))
        # In reverse order, the undos are a change with a timer of its own.
        steps = [
            Step(
                title, self.host, do=do, undo=CONFIRM, undo_title=_KEEP, before=before, after=after
            ),
            Step(_KEEP, self.host, do=CONFIRM, undo=undo, undo_title=f"Undo: {title}"),
        ]
        return Plan(found, steps, list(self._list_notes(state)))

    def refuse_unsafe(self, state: PortState) -> None:
        """Refuse a port that other switches, or Keyturn itself, may depend on."""
        if state.settings.obstacle:
            raise Refused(
                f"{state.name} {state.settings.obstacle}: Keyturn changes access ports only"
            )
        if state.is_uplink:
            raise Refused(
                f"{state.name} is an uplink of {self.host}: Keyturn changes access ports only"
            )
        far = [each for each in state.neighbours or () if each.is_switch]
        if far and self.uplink == "refuse":
            raise Refused(
                f"{state.name} leads to {far[0].name or 'a device'} ({far[0].protocol}), which is "
                "a switch or router, or does not say what it is: request it with uplink=allow if "
                "that is right"
            )
        if self.revert == "timer" and state.is_pending:
            raise Refused(
                f"a change on {self.host} waits for its confirmation already: confirm or revert "
                "it, or wait until it is reverted"
            )
        if self.revert == "timer" and not state.can_revert:
            how = (
                "it has no configuration archive (set `archive` and its `path`)"
                if state.settings.can_revert
                else "its software has no timer for that"
            )
            raise Refused(
                f"{self.host} cannot revert a change by itself: {how}. To change the port without "
                "that, request it with revert=none"
            )

    def _list_notes(self, state: PortState) -> Iterator[str]:
        if self.revert == "timer":
            yield (
                "Unless Keyturn confirms the change over a new connection within "
                f"{REVERT_MINUTES} minutes, {self.host} reverts it by itself, with everything "
                "that anyone else configures there meanwhile."
            )
        else:
            yield f"{self.host} does not revert the change if it cuts Keyturn off."
        if state.neighbours is None:
            yield f"It is unknown what is at the other end of {state.name}."
        for each in state.neighbours or ():
            yield f"{each.name or 'A device'} is at the other end ({each.protocol})."
        yield "The startup configuration is not changed: a restart of the switch undoes it."


class DisablePort(
    _ChangePort,
    words="switch port disable",
    example="sw1 Gi1/0/3",
    undo="enables the port again",
    sets="switch port {port}",
):
    """Disable a port of a switch."""

    def plan_anyway(self, state: PortState) -> Plan:
        values = (state.describe_activity(), "disabled")
        lines = ("shutdown", "no shutdown")
        return self.make_plan(state, f"Disable {state.name}", lines, values)


class EnablePort(
    _ChangePort,
    words="switch port enable",
    example="sw1 Gi1/0/3",
    undo="disables the port again",
    sets="switch port {port}",
):
    """Enable a port of a switch, also one that the switch has stopped (err-disabled)."""

    def takes_down(self) -> Sequence[Leg]:
        return ()

    def plan_anyway(self, state: PortState) -> Plan:
        values = (state.describe_activity(), "enabled")
        if not state.fault:
            lines = ("no shutdown", "shutdown")
            return self.make_plan(state, f"Enable {state.name}", lines, values)
        # It is not shut down in its configuration: only this sequence clears the fault.
        lines = ("shutdown", "no shutdown", "shutdown")
        plan = self.make_plan(state, f"Shut {state.name} down and enable it", lines, values)
        note = f"Find the cause first: while it lasts, {self.host} stops {state.name} again."
        return replace(plan, notes=[note, *plan.notes])


class SetPortVlan(
    _ChangePort,
    _PortAndVlan,
    words="switch port vlan",
    example="sw1 Gi1/0/3 20",
    undo="sets the previous VLAN",
    sets="switch port vlan {port}",
):
    """Set the VLAN of an access port of a switch."""

    def plan(self, state: PortState) -> Plan:
        plan = super().plan(state)
        if plan.steps and self.vlan not in state.vlans:
            raise Refused(f"{self.host} has no VLAN {self.vlan}: create it there first")
        return plan

    def plan_anyway(self, state: PortState) -> Plan:
        lines = (f"switchport access vlan {self.vlan}", state.settings.vlan_line)
        values = (f"in VLAN {state.settings.vlan}", f"in VLAN {self.vlan}")
        return self.make_plan(state, f"Put {state.name} into VLAN {self.vlan}", lines, values)


def _run_optional(run_query: QueryRunner, host: str, query: Query[T]) -> T | None:
    """Run a query of a protocol or feature; None where the device has it disabled or lacks it."""
    try:
        return run_query(host, query)
    except CommandError as error:
        if any(sign in str(error) for sign in _OFF):
            return None
        raise
