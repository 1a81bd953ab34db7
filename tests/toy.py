"""A toy world: hosts with named switches, a runbook that sets them, and a fleet that keeps its
promises about them. It is as real to the service as a data centre."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from connectors.command import NO_HOOKS, Answer, Command, Query, QueryRunner, RunHooks, Shell
from connectors.errors import AlreadyStartedError, UnreachableError
from connectors.step_marker import StepMarker
from connectors.step_status import MarkerState, StepStatus
from runbooks import Change, Check, Host, Leg, NoUndo, Plan, Refused, Report, Step, make_host_field

T = TypeVar("T")
Switches = dict[str, str]


def _parse(text: str) -> Switches:
    return dict(re.findall(r"(\w+)=(\w+)", text))


SHOW = Query(Shell(("show",)), _parse)


class SetSwitch(Change[Switches], words="toy set", example="lb1 lamp on", undo="sets it back"):
    """Set one switch."""

    host: Host
    name: str
    value: str

    def read(self, ask: QueryRunner) -> Switches:
        return ask(self.host, SHOW)

    def plan(self, switches: Switches) -> Plan:
        was = switches[self.name]
        if was == "stuck":
            raise Refused(f"{self.name} is stuck: loosen it before setting it")
        if was == self.value:
            return Plan(f"{self.name} is {was}")
        step = Step(
            f"Set {self.name} to {self.value}",
            self.host,
            do=Shell(("set", self.name, self.value)),
            undo=Shell(("set", self.name, was)),
            before=was,
            after=self.value,
        )
        return Plan(f"{self.name} is {was}", [step])


class SetAll(Change[Switches], words="toy set all", example="lb1 on", undo="sets them back"):
    """Set every switch, one step each."""

    host: Host
    value: str

    def read(self, ask: QueryRunner) -> Switches:
        return ask(self.host, SHOW)

    def plan(self, switches: Switches) -> Plan:
        steps = [
            Step(
                f"Set {name}",
                self.host,
                do=Shell(("set", name, self.value)),
                undo=Shell(("set", name, was)),
                before=was,
                after=self.value,
            )
            for name, was in sorted(switches.items())
            if was != self.value
        ]
        return Plan(" ".join(f"{name}={value}" for name, value in sorted(switches.items())), steps)


class TakeDown(SetSwitch, words="toy restart", example="lb1 lamp on", undo="sets it back"):
    """Set one switch, with its host down meanwhile."""

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host)]


WARNING = "It hums until it is warm."


class WarmUp(SetSwitch, words="toy warm", example="lb1 lamp on", undo="sets it back"):
    """Set one switch, and let its host warm up after that."""

    def plan(self, switches: Switches) -> Plan:
        if switches.get("weather") == "hot":
            raise Refused("it is hot: ask again when it is cooler")
        plan = self.plan_anyway(switches)
        return Plan(plan.current_state, plan.steps, [WARNING])

    def plan_anyway(self, switches: Switches) -> Plan:
        return super().plan(switches)

    def refuse_undo(self, switches: Switches) -> None:
        if switches.get("warming") == "burnt":
            raise Refused("it is burnt out, and stays so")

    def report_progress(self, switches: Switches) -> Report:
        warming = switches.get("warming", "off") == "on"
        if switches.get("warming") == "burnt":
            return Report("burnt out", healthy=False)
        return Report("still warming up" if warming else "warm now", running=warming)


class KeepSwitch(
    SetSwitch,
    words="toy keep",
    example="lb1 lamp on",
    undo="sets it back",
    sets="switch {name}",
):
    """Set one switch to what it is to stay at."""


class BreakSwitch(Change[Switches], words="toy break", example="lb1 lamp"):
    """Break a switch for good."""

    host: Host
    name: str

    def read(self, ask: QueryRunner) -> Switches:
        return ask(self.host, SHOW)

    def plan(self, switches: Switches) -> Plan:
        if switches[self.name] == "broken":
            return Plan("broken")
        step = Step("Break it", self.host, Shell(("set", self.name, "broken")), NoUndo("gone"))
        return Plan("whole", [step])


class MeltSwitch(BreakSwitch, words="toy melt", example="lb1 lamp", undo="sets it back"):
    """Break a switch for good, although others of its kind can be repaired."""


class ShowSwitches(Check[Switches], words="toy show", example="lb1"):
    """See every switch."""

    host: Host

    def read(self, ask: QueryRunner) -> Switches:
        return ask(self.host, SHOW)

    def report(self, switches: Switches) -> Report:
        return Report(
            f"{len(switches)} switches",
            healthy="broken" not in switches.values(),
            findings=[f"{k}={v}" for k, v in switches.items()],
        )


class TuneSwitch(Change[Switches], words="toy tune", example="lb1 lamp", undo="puts it out"):
    """Light one of the switches that the host lists."""

    host: Host = make_host_field("haproxy")
    name: Annotated[
        str,
        Field(
            pattern="^[a-z]+$",
            description="Which switch",
            json_schema_extra={"lists": "switches"},
        ),
    ]
    how: Literal["on", "dim"] = "on"

    def read(self, ask: QueryRunner) -> Switches:
        return ask(self.host, SHOW)

    def plan(self, switches: Switches) -> Plan:
        if switches[self.name] == self.how:
            return Plan("lit")
        do, undo = (Shell(("set", self.name, how)) for how in (self.how, switches[self.name]))
        return Plan("not lit", [Step("Light it", self.host, do=do, undo=undo)])


# By the table that has marked them.
ABUSERS: Mapping[str, list[str]] = {
    "http": ["203.0.113.9"],
    "www": ["198.51.100.7", "2001:db8::7"],
}
LISTS: Mapping[str, Callable[[QueryRunner, str, Mapping[str, str]], Iterable[str]]] = {
    "abusers": lambda _ask, _host, where: ABUSERS[where["table"]],
    "tables": lambda _ask, _host, _: ABUSERS,
    "switches": lambda ask, host, _: ask(host, SHOW),
}
RUNBOOKS: Mapping[str, type] = {
    runbook.words: runbook
    for runbook in (
        SetSwitch,
        SetAll,
        TakeDown,
        WarmUp,
        KeepSwitch,
        BreakSwitch,
        MeltSwitch,
        ShowSwitches,
        TuneSwitch,
    )
}


@dataclass
class ToyFleet:
    """Answers for hosts that are dictionaries. sent: every command in the order it arrived.

    markers: what became of each step, as its host would say: None is one that never began, and
    never will. recalled: how often hosts were asked that. recalls: what a host says instead, if
    anything; may raise trouble.
    hooks: those of the last command.
    before_send, before_query: called first with the host and the words; may raise trouble, or move
    the world as somebody else would.
    """

    hosts: dict[str, Switches] = field(
        default_factory=lambda: {"lb1": {"fan": "off", "lamp": "off"}, "lb2": {"lamp": "off"}}
    )
    sent: list[tuple[str, str]] = field(default_factory=list)
    asked: int = 0
    recalled: int = 0
    recalls: Callable[[], StepStatus | None] = lambda: None
    markers: dict[tuple[str, int], Answer | None] = field(
        default_factory=dict[tuple[str, int], Answer | None]
    )
    fingerprints: list[str] = field(default_factory=list[str])
    hooks: RunHooks = NO_HOOKS
    before_send: Callable[[str, str], None] = lambda _host, _words: None
    before_query: Callable[[str], None] = lambda _host: None
    after_send: Callable[[str, str], None] = lambda _host, _words: None
    # Hosts that refuse new connections, although those opened earlier still work.
    refusing: set[str] = field(default_factory=set[str])

    def run_query(self, host: str, query: Query[T], /) -> T:
        is_login = isinstance(query.command, Shell) and query.command.new_connection
        if is_login and host in self.refusing:
            raise UnreachableError(f"{host} refused the connection: check that sshd is running")
        self.asked += 1
        self.before_query(host)
        return query.parse(" ".join(f"{k}={v}" for k, v in self.hosts[host].items()))

    def run_command(
        self,
        host: str,
        command: Command,
        /,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        self.hooks = hooks
        self.fingerprints.append(fingerprint)
        self.before_send(host, str(command))
        assert isinstance(command, Shell)
        assert command.marker is not None
        key = command.marker.run, command.marker.step
        if key in self.markers:
            raise AlreadyStartedError("the host had already started this step")
        self.sent.append((host, str(command)))
        _, name, value = command.words
        self.hosts[host][name] = value
        answer = self.markers[key] = Answer(0, f"{name} is {value} now\n")
        self.after_send(host, str(command))
        return answer

    def query_step(self, host: str, marker: StepMarker, /, *, fingerprint: str = "") -> StepStatus:  # noqa: ARG002
        self.recalled += 1
        self.before_query(host)
        if (status := self.recalls()) is not None:
            return status
        answer = self.markers.setdefault((marker.run, marker.step), None)
        if answer is None:
            return StepStatus(MarkerState.CLOSED, uptime=1e9)
        return StepStatus(MarkerState.ENDED, uptime=1e9, status=answer.status, out=answer.out)

    def query_with_changer(self, host: str, query: Query[T], /, **_: str) -> T:
        raise AssertionError(f"{host} is not enrolled: {query}")

    def resolve_command(self, host: str, command: Command, /) -> Command:  # noqa: ARG002
        return command
