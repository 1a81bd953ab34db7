"""The two kinds of runbook: a check looks, a change looks and plans."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, model_validator

from connectors.command import InvisibleCharacterError, QueryRunner, refuse_invisible
from runbooks._plan import Leg, Plan, Report

State = TypeVar("State")


class Runbook(BaseModel, Generic[State]):
    """One request: its class says what is wanted, its fields say of what.

    A class is a runbook people can ask for once it has `words`:

        class ClearAbuser(Change[Abuser], words="abusers clear", example="lb1 203.0.113.9"):
            ""\"Let an address back in that HAProxy has marked as an abuser.""\"

    words: what people type. example: values that help shows behind the words.
    undo: for a change, what its undo does in a few words; "" if it cannot be undone.
    minutes: how close two fires of a schedule may be to each other.
    """

    # A default is stored and validated again like any other value, so it must fit its own field.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=False, validate_default=True
    )
    words: ClassVar[str] = ""
    example: ClassVar[str] = ""
    undo: ClassVar[str] = ""
    minutes: ClassVar[int] = 1

    def __init_subclass__(
        cls,
        *,
        words: str = "",
        example: str = "",
        undo: str = "",
        minutes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if minutes is not None:
            cls.minutes = minutes
        cls.words, cls.example, cls.undo = words, example, undo

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
        """The host that this request is about; every runbook has one."""
        return str(getattr(self, "host", ""))

    @abstractmethod
    def read(self, run_query: QueryRunner, /) -> State:
        """Look at everything the decision depends on, and change nothing."""


def _refuse_invisible_value(name: str, value: str) -> None:
    try:
        refuse_invisible(value)
    except InvisibleCharacterError as unclean:
        raise ValueError(f"{name} {unclean}") from None
    if value.startswith("-"):
        raise ValueError(f"{name} begins with '-', which programs would take for an option")


class Check(Runbook[State], Generic[State]):
    @abstractmethod
    def report(self, state: State, /) -> Report:
        """Judge what was read."""


class Change(Runbook[State], Generic[State]):
    minutes = 10

    @abstractmethod
    def plan(self, state: State, /) -> Plan:
        """Say what is still to be done, from what was read alone.

        It is called three times: to show people the plan, to make sure that nothing moved while
        they decided, and, once applied, to prove that nothing is left.
        """

    def plan_anyway(self, state: State, /) -> Plan:
        """Plan without refusing what is possible and had better not be done now.

        An undo is held against this plan: what was done is in effect if nothing of it is left.
        """
        return self.plan(state)

    def takes_down(self) -> Sequence[Leg]:
        """Return what may be down while the change runs: the host, or a part of it.

        The redundancy guard refuses a change that takes the last leg of a service down. Most
        changes take nothing down.
        """
        return ()

    def refuse_undo(self, state: State, /) -> None:
        """Raise Refused if what was done is in effect and can no longer be undone.

        Asked with what is read anew, before an undo is shown to anybody and before it starts.
        """

    def report_progress(self, state: State, /) -> Report | None:  # noqa: ARG002 - of those that go on
        """Say how the work goes that was started and goes on after the run; None if none does.

        Where it is overridden it is asked, with what is read anew, until nothing is running.
        """
        return None


AnyRunbook = Runbook[Any]
