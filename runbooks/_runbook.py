"""The two kinds of runbook: a `Check` reads and reports, a `Change` reads and plans.

A minimal change, in a module of its own in `runbooks/`:

    class SetSwappiness(
        Change[int], words="swappiness set", example="web1 10", sets="swappiness"
    ):
        \"\"\"Set how eagerly the kernel swaps.\"\"\"

        host: Host
        value: int = Field(ge=0, le=100, description="0 to 100")

        def read(self, run_query: QueryRunner) -> int:
            return run_query(self.host, sysctl.query_swappiness())

        def plan(self, current: int) -> Plan:
            if current == self.value:
                return Plan(f"swappiness is {current}")
            return Plan(f"swappiness is {current}", [Step(
                f"Set swappiness to {self.value}", self.host,
                do=sysctl.set_swappiness(self.value), undo=sysctl.set_swappiness(current),
                before=str(current), after=str(self.value))])

The class is all there is to write: the slash command, the forms, the API, the help and the
schedules use it.
"""

from abc import abstractmethod
from collections.abc import Sequence
from string import Formatter
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, model_validator

from connectors.command import QueryRunner
from connectors.probation import Probation
from connectors.visible_text import InvisibleCharacterError, refuse_invisible
from runbooks._plan import Leg, Plan, Report

State = TypeVar("State")


class Runbook(BaseModel, Generic[State]):
    """A runbook: the class is the kind of request, an instance is one request with its values.

    Derive from `Check` or `Change`. The type parameter is the state that `read` returns. The
    first line of the docstring is the help text. Requests are possible once the class has `words`:

        class ClearAbuser(Change[Abuser], words="abusers clear", example="lb1 203.0.113.9"):
            ""\"Unblock an address that HAProxy has marked as an abuser.""\"

    Fields are pydantic fields; `runbooks` has types for common ones, such as `Host`. Every
    runbook has the field `host`.
    """

    # A default is stored and validated again like any other value, so it must be valid itself.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=False, validate_default=True
    )
    words: ClassVar[str] = ""
    """The slash command, such as `abusers clear`. It identifies the runbook."""
    example: ClassVar[str] = ""
    """Values that help shows after the words."""
    also_called: ClassVar[Sequence[str]] = ()
    """Other words for it, such as `unban`, by which plain requests and searches find it."""
    undo: ClassVar[str] = ""
    """What the undo of a change does, in a few words; "" if it cannot be undone."""
    minutes: ClassVar[int] = 1
    """The shortest interval of a schedule, in minutes."""
    sets: ClassVar[str] = ""
    """What a change gives a lasting value, with the fields that identify it on the host, such as
    `shaping {interface}`: all other fields are the value. Runbooks that set the same thing have
    the same text. "" for an act, such as a restart, and for a value that expires or that changes
    by itself. Keyturn watches these values: see docs/drift.md."""

    def __init_subclass__(
        cls,
        *,
        words: str = "",
        example: str = "",
        also_called: Sequence[str] = (),
        undo: str = "",
        minutes: int | None = None,
        sets: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.also_called = tuple(also_called)
        if minutes is not None:
            cls.minutes = minutes
        cls.words, cls.example, cls.undo, cls.sets = words, example, undo, sets

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        named = {name for _, name, _, _ in Formatter().parse(cls.sets) if name is not None}
        if unknown := sorted(named - cls.model_fields.keys()):
            raise TypeError(f'sets="{cls.sets}": {cls.__name__} has no field {", ".join(unknown)}')

    @model_validator(mode="before")
    @classmethod
    def _refuse_invisible_values(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, value in cast("dict[str, object]", data).items():
                if isinstance(value, str):
                    _refuse_invisible_value(name, value)
        return cast("Any", data)

    @property
    def target(self) -> str:
        """The host of this request: the value of its field `host`."""
        return str(getattr(self, "host", ""))

    @property
    def key_name(self) -> str:
        """What this request sets on its host, such as `shaping eth0`; "" for an act."""
        return self.sets.format_map(self.model_dump(mode="json"))

    @abstractmethod
    def read(self, run_query: QueryRunner, /) -> State:
        """Read everything that the plan or report depends on, and change nothing.

        Args:
            run_query: runs a query on a host and returns its parsed output. It is the only access
                to the outside.

        Returns:
            The state, as the immutable type of the class's type parameter.

        Raises:
            Refused: the request makes no sense on this host.
            HostError: raised by `run_query`. Do not catch it to return an empty state.
        """


def _refuse_invisible_value(name: str, value: str) -> None:
    try:
        refuse_invisible(value)
    except InvisibleCharacterError as error:
        raise ValueError(f"{name} {error}") from None
    if value.startswith("-"):
        raise ValueError(f"{name} begins with '-', which programs take as an option")


class Check(Runbook[State], Generic[State]):
    """A runbook that only reads. It runs immediately, without an approval."""

    columns: ClassVar[Sequence[str]] = ()
    """The headings of the report's table. Conditions of fault trees name them, see
    docs/redundancy.md; without them, a wrong name is noticed only when the check runs."""
    rows: ClassVar[Sequence[str]] = ()
    """The first cells of the table's rows, where no others occur."""
    verifies_tag: ClassVar[bool] = False
    """Whether it shows that a host has what its tag promises. `keyturn inventory check` runs it
    on every host with the tag, with the values of `example` for other required fields."""

    def __init_subclass__(
        cls,
        *,
        columns: Sequence[str] = (),
        rows: Sequence[str] = (),
        verifies_tag: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.columns, cls.rows, cls.verifies_tag = columns, rows, verifies_tag

    @abstractmethod
    def report(self, state: State, /) -> Report:
        """Return the report of the state that `read` returned. Do no I/O."""


class Change(Runbook[State], Generic[State]):
    """A runbook that changes something on a host."""

    minutes = 10

    @abstractmethod
    def plan(self, state: State, /) -> Plan:
        """Return the steps that are still needed, computed from the state alone. Do no I/O.

        It is called three times: to show the plan to the requester and approvers, before the
        run to check that it has not changed, and after the run to verify that nothing is left.
        So it must return no steps once the change is in effect.

        Raises:
            Refused: the change is impossible or unsafe in this state.
        """

    def plan_anyway(self, state: State, /) -> Plan:
        """Return the plan without refusing what is possible but unwise now.

        Override it if `plan` refuses for such reasons. An undo uses this plan: the change is in
        effect if no steps are left.
        """
        return self.plan(state)

    def plan_after(self, state: State, /) -> Plan:
        """Return what is left once every step has succeeded; no steps verify the run.

        Override it only for an act that leaves no trace to read, such as a power cycle.
        """
        return self.plan(state)

    def takes_down(self) -> Sequence[Leg]:
        """Return what may be down while the change runs: the host, or a part of it.

        The redundancy guard refuses a change that takes the last leg of a service down. Most
        changes take nothing down.
        """
        return ()

    def get_probation(self) -> Probation | None:
        """Return the probation of a change that can lock Keyturn or people out of its host.

        The host then saves what the steps replace, and restores it unless Keyturn confirms the
        change over a new connection. Most changes cannot lock out.
        """
        return None

    def refuse_undo(self, state: State, /) -> None:
        """Raise Refused if the change is in effect and cannot be undone any more.

        It is called with newly read state, before an undo is shown and before it starts.
        """

    def report_progress(self, state: State, /) -> Report | None:  # noqa: ARG002 - for overrides
        """Return the progress of work that continues after the run; None if there is none.

        If a change overrides it, it is called with newly read state until `running` is False.
        """
        return None


AnyRunbook = Runbook[Any]
